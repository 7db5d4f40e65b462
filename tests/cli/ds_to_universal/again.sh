# SPDX-License-Identifier: Apache-2.0
# An output that is there is replaced as a whole: nothing stale stays, not even after a failure.
cp -R "$FIXTURES"/z2_bf16_w2_aligned/ckpt run
ds_to_universal -q --input_folder run/global_step4/ --output_folder run/out
mkdir run/out/zero/stale
cp run/out/zero/gate/fp32.pt run/out/zero/stale
ds_to_universal -q --input_folder run/none --output_folder run/out
ls run/out/zero | grep stale
ds_to_universal -q --input_folder run/global_step4 --output_folder run/out
ls run/out/zero | grep stale
ls -A run
