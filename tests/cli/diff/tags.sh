# SPDX-License-Identifier: Apache-2.0
# Two tags of one run, and one of another.
run=$FIXTURES/z1_bf16_w2_tags/ckpt
ckpt diff --tag-a first --tag-b global_step2 "$run" "$run" | tail -1
ckpt diff --tag-a first --tag-b first "$run" "$run"
ckpt diff -t first "$run" "$run"
ckpt diff -t first --tag-b global_step2 "$run" "$run" | tail -1
ckpt convert -q -t global_step2 "$run" out.safetensors
ckpt diff --tag-a global_step2 "$run" out.safetensors
ckpt diff --tag-b global_step2 out.safetensors "$run"
ckpt diff -t nowhere "$run" "$run"
