# SPDX-License-Identifier: Apache-2.0
# What was probably meant is said: commands, options, tensors; what was cut too short as well.
ckpt convrt a b; echo $?
ckpt lss x; echo $?
ckpt frobnicate; echo $?
ckpt convert --dytpe bf16 a b; echo $?
ckpt convert --wholly-unlike a b; echo $?
ckpt convert --no a b; echo $?
zero_to_fp32 --max_shard_sise 2KB a b; echo $?
ckpt cat "$FIXTURES"/hf_bert_sharded bert.embeddings.word_embeddings.wieght; echo $?
ckpt ls "$FIXTURES"/z1_bf16_w2_tags/ckpt -t global_step44; echo $?
