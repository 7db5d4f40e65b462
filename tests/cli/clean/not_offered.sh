# SPDX-License-Identifier: Apache-2.0
# What a killed run has left is never offered as a checkpoint: the message says what it is.
mkdir -p run/.global_step4.ckpt-partial/new
cp "$FIXTURES"/z3_bf16_w5_odd/ckpt/*/*.pt run/.global_step4.ckpt-partial/new
: >run/.global_step4.ckpt-partial/journal
ckpt info run; echo $?
ckpt info run/.global_step4.ckpt-partial; echo $?
# A folder that is one is still offered.
mkdir run/sub
cp -r "$FIXTURES"/hf_bert_sharded run/sub/model
ckpt info run/sub; echo $?
