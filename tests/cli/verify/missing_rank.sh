# SPDX-License-Identifier: Apache-2.0
# A shard that is gone.
cp -r "$FIXTURES"/z3_bf16_w5_odd/ckpt run
chmod -R u+w run
find run -name '*pp_rank_3_*optim_states.pt' -exec rm {} \;
ckpt verify run
