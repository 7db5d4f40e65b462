# SPDX-License-Identifier: Apache-2.0
# A folder with two models of one save (accelerate's save_state): they are not averaged, and convert mentions the other.
cp -r "$FIXTURES/z1_bf16_w3_groups/ckpt" run && cd run || exit
one=$(cat latest)
cp -r "$one" pytorch_model && mv "$one" pytorch_model_1 && rm -rf global_step* && echo pytorch_model_1 >latest
cd ..
ckpt merge --no-fsync --last 2 run -o mean.safetensors
echo "status $?"
ckpt convert --no-fsync --dry-run run out.safetensors >/dev/null
ckpt convert -q --no-fsync --strict run out.safetensors
echo "status $?"
# two tags of one step under other names
mv run/pytorch_model run/best && mv run/pytorch_model_1 run/final && echo final >run/latest
ckpt merge --no-fsync --last 2 run -o mean.safetensors
echo "status $?"
ckpt convert --no-fsync --dry-run run out.safetensors >/dev/null
ls
