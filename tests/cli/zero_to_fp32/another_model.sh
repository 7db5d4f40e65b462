# SPDX-License-Identifier: Apache-2.0
# An older output of the same model is replaced, and named; another model, or what cannot be read, only with --force.
z2=$FIXTURES/z2_bf16_w2_aligned/ckpt z1=$FIXTURES/z1_bf16_w3_groups/ckpt
zero_to_fp32 "$z2" out 2>&1 | grep replaced
zero_to_fp32 "$z2" out 2>&1 | grep replaced
zero_to_fp32 -q "$z2" out --exclude_frozen_parameters
echo "the same without frozen parameters: $?"
zero_to_fp32 "$z1" out
echo "another model: $?"
ckpt diff -q "$z2" out >/dev/null
echo "still the first: $?"
zero_to_fp32 -q "$z1" out --force
echo "another model with --force: $?"
ckpt diff "$z1" out
zero_to_fp32 -q "$z1" one.bin
zero_to_fp32 -q "$z2" one.bin
echo "a file: $?"
echo text >two.bin
zero_to_fp32 -q "$z2" two.bin
echo "no checkpoint: $?"
cat two.bin
zero_to_fp32 -q -f "$z2" two.bin
echo "with --force: $?"
