# SPDX-License-Identifier: Apache-2.0
# What the script's options mean here.
cp -R "$FIXTURES"/z3_bf16_w5_odd/ckpt run
ds_to_universal --input_folder run/global_step4 --output_folder uni --keep_temp_folder --no_strict --inject_missing_state
ls -A
