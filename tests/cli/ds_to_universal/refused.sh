# SPDX-License-Identifier: Apache-2.0
# A checkpoint that cannot be converted is no wrong command line: status 3, the reason that the reader has found, no hint to the help.
# What has no place in a universal checkpoint is named.
make=$FIXTURES/../cli/ds_tiny.py
for case in twins flat nadam; do
    python3 "$make" $case $case
    ds_to_universal -q --input_folder $case/global_step4 --output_folder $case/universal
    echo "$case: $?"
done
ds_to_universal -q --input_folder "$FIXTURES"/tp2_pp2_z1_w4/ckpt --output_folder out
echo "kept apart: $?"
cp -r "$FIXTURES"/hf_bert_sharded model
chmod -R u+w model
touch model/pytorch_model.fp16.bin
zero_to_fp32 -q model out.pt
echo "no run: $?"
ckpt convert -q twins u --to universal
echo "convert: $?"
ls
