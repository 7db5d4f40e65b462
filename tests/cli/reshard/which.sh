# SPDX-License-Identifier: Apache-2.0
# A folder that a trainer has left, with a model at its top and checkpoints inside: which one is meant must be said.
cp -r "$FIXTURES/hf_bert_sharded" out
cp -r "$FIXTURES/z1_bf16_w3_groups/ckpt" out/checkpoint-9
cp -r "$FIXTURES/z1_bf16_w3_groups/ckpt" out/checkpoint-10
chmod -R u+w out
ckpt reshard out new --stage 1; echo "status $?"
ckpt reshard out new --to dcp; echo "status $?"
# both ways of the message
ckpt reshard -q out/checkpoint-10 on -w 2 && ckpt info on | grep -i step
ckpt convert -q out model --to hf && ckpt reshard -q model fresh --stage 1 -w 2 && ls fresh
# one file, another layout of the checkpoints, one of them
mkdir one && ckpt convert -q "$FIXTURES/hf_bert_sharded" one/model.safetensors && cp out/config.json one
cp -r "$FIXTURES/z1_bf16_w3_groups/ckpt" one/run
ckpt reshard one new --stage 1; echo "status $?"
ckpt convert -q one model2 --to hf && ckpt reshard -q model2 fresh2 --stage 1 -w 2 && ls fresh2
# a model without checkpoints is a model; so is a folder whose name only looks like one of them
rm -r one/run && mkdir one/checkpoint-3 one/checkpoint-x
ckpt reshard -q one fresh3 --stage 1 -w 2 && ls fresh3
# weights are asked for by their folder as before
ckpt convert -q out weights.safetensors && ckpt ls -q weights.safetensors | wc -l
