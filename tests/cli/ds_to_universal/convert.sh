# SPDX-License-Identifier: Apache-2.0
# Arguments and lines of the script; both spellings; a slash at the end changes nothing.
cp -R "$FIXTURES"/z1_bf16_w3_groups/ckpt run
ds_to_universal --input_folder run/global_step4 --output-folder run/out/ --num_extract_workers 8 --num_merge_workers 1
cat run/latest_universal; echo
ls run run/out run/out/zero/wpe.weight
ckpt diff --with-optimizer run/out run/global_step4
