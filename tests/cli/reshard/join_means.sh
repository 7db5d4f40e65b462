# SPDX-License-Identifier: Apache-2.0
# A parameter that each tensor-parallel rank trained alone becomes the mean of all, in the masters and in the module.
ckpt reshard -q --join --stage 1 --world 1 "$FIXTURES/tp2_pp2_z1_w4/ckpt" joined
ckpt verify joined
ckpt cat -q joined 1.b.bias -r 0:2
ckpt convert -q --weights-only joined module.safetensors
ckpt cat -q module.safetensors 1.b.bias -r 0:2
