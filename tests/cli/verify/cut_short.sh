# SPDX-License-Identifier: Apache-2.0
# A shard that was not copied to its end.
cp -r "$FIXTURES"/z2_bf16_w2_aligned/ckpt run
chmod -R u+w run
f=$(find run -name '*pp_rank_1_*optim_states.pt')
head -c 2000 "$f" >short && mv short "$f"
ckpt verify run
