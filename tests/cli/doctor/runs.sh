# SPDX-License-Identifier: Apache-2.0
# A Trainer's folder: each checkpoint has a `latest` of its own, and the last one counts.
mkdir out
cp -r "$FIXTURES"/hf_trainer_llama_z3_bf16_w2/ckpt out/checkpoint-10
cp -r "$FIXTURES"/hf_trainer_llama_z3_bf16_w2/ckpt out/checkpoint-9
chmod -R u+w out
rm out/checkpoint-9/latest
ckpt doctor out; echo $?
rm out/checkpoint-10/global_step4/*pp_rank_0_*optim_states.pt
ckpt doctor out; echo $?
