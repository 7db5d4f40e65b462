# SPDX-License-Identifier: Apache-2.0
# '-' is standard output where one file goes there, else no place for an output; no file of that name is made.
S=$FIXTURES/z1_bf16_w3_groups/ckpt
ckpt convert -q "$S" - --to torch | wc -c
ckpt convert -q "$S" - --to hf; echo $?
ckpt reshard -q "$S" - --world 1 --stage 1; echo $?
zero_to_fp32 "$S" -; echo $?
ls -A
ckpt convert -q "$S" ./- --to torch; echo $?
ls -A
