# SPDX-License-Identifier: Apache-2.0
# A Trainer's folder without `latest`: the script takes the tag it is given; without one it refuses.
cp -r "$FIXTURES"/hf_trainer_llama_z3_bf16_w2/ckpt run
zero_to_fp32 -q run a
rm run/latest
zero_to_fp32 -q run b -t global_step4; echo $?
cmp a/pytorch_model.bin b/pytorch_model.bin && echo same
zero_to_fp32 -q run c; echo $?
ls
