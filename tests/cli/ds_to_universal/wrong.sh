# SPDX-License-Identifier: Apache-2.0
# Wrong arguments, and inputs that the script would not read either.
ds_to_universal --input_folder a
echo $?
ds_to_universal --output_folder a
echo $?
ds_to_universal -q --input_folder a --output_folder a/
echo $?
ds_to_universal -q --input_folder a --output_folder /
echo $?
ds_to_universal -q --input_folder "$FIXTURES"/safetensors_dtypes --output_folder out
echo $?
ds_to_universal -q --input_folder "$FIXTURES"/z3_bf16_w5_odd/ckpt --output_folder out --deepspeed_version never
echo $?
ls -A
