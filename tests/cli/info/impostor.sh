# SPDX-License-Identifier: Apache-2.0
# What downloads leave instead of a file is said for what it is, in folders too.
printf 'version https://git-lfs.github.com/spec/v1\noid sha256:%064d\nsize 438\n' 0 >model.safetensors
printf '\n<!DOCTYPE html>\n<html><body>401</body></html>\n' >model.bin
ckpt ls model.safetensors; echo $?
ckpt ls model.bin; echo $?
mkdir hf && cp model.safetensors hf && cp "$FIXTURES"/hf_bert_sharded/config.json hf && ckpt ls hf; echo $?
cp -r "$FIXTURES"/z1_bf16_w3_groups/ckpt run && chmod -R u+w run
for f in run/global_step*/*optim_states.pt; do cp model.safetensors "$f"; break; done
ckpt verify run 2>&1 | cut -c1-190; echo $?
