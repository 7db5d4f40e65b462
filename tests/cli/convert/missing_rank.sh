# SPDX-License-Identifier: Apache-2.0
# A shard that is gone.
cp -r "$FIXTURES"/z2_bf16_w2_aligned/ckpt run
find run -name '*pp_rank_1_*optim_states.pt' -exec rm {} \;
ckpt convert -q run m.safetensors; echo $?; ls
