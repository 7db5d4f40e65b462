# SPDX-License-Identifier: Apache-2.0
# A folder that is no universal checkpoint is not replaced.
mkdir mine empty
echo precious >mine/file
ds_to_universal -q --input_folder "$FIXTURES"/z3_bf16_w5_odd/ckpt/global_step4 --output_folder mine
echo $?
cat mine/file
ds_to_universal -q --input_folder "$FIXTURES"/z3_bf16_w5_odd/ckpt/global_step4 --output_folder empty
ls empty
