# SPDX-License-Identifier: Apache-2.0
# A Trainer's folder whose `latest` is gone: never the 16-bit model beside the shards without a word.
cp -r "$FIXTURES"/hf_trainer_llama_z3_bf16_w2/ckpt run
rm run/latest
for verb in info verify ls; do
    ckpt $verb run; echo $?
done
ckpt convert run out.pt; echo $?
# Either can be asked for.
ckpt info run -t global_step4 | sed -n 1,3p
ckpt info run/model.safetensors | sed -n 1,2p
ckpt verify run -t global_step4; echo $?
# A tag is never ignored.
ckpt info run -t nope; echo $?
ckpt info run/model.safetensors -t global_step4; echo $?
ckpt info "$FIXTURES"/hf_bert_sharded -t global_step4; echo $?
