# SPDX-License-Identifier: Apache-2.0
# --weights-only misses a parameter whose layer's file is lost, because param_shapes names it.
cp -R "$FIXTURES/pipe2_z1_w4_tied/ckpt" run
ckpt convert -q --weights-only run whole.safetensors
echo "whole: $?"
rm run/global_step3/layer_02*
ckpt convert -q --weights-only run part.safetensors
echo "a layer lost: $?"
ls part.safetensors 2> /dev/null
