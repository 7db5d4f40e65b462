# SPDX-License-Identifier: Apache-2.0
# A run of Megatron-Core without common.pt: no program can resume it; its weights are whole.
cp -r "$FIXTURES/mcore_llama_distopt_dp2/ckpt" run && chmod -R u+w run && rm run/iter_0000003/common.pt
ckpt verify run || echo "status $?"
ckpt doctor run | sed 's/[0-9.]* KB/SIZE/'
ckpt doctor -q run || echo "status $?"
ckpt ls run | tail -1
ckpt convert -q --map none run out.safetensors && ckpt diff run out.safetensors
ckpt convert -q --strict --map none run x.safetensors || echo "status $?"
