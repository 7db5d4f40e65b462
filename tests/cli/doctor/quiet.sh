# SPDX-License-Identifier: Apache-2.0
# Only the names of whole tags.
cp -r "$FIXTURES"/z1_bf16_w2_tags/ckpt run
chmod -R u+w run
: >"$(find run/first -name '*pp_rank_1_*optim_states.pt')"
ckpt doctor -q run
