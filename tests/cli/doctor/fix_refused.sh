# SPDX-License-Identifier: Apache-2.0
# No tag is whole: `latest` stays.
cp -r "$FIXTURES"/z3_bf16_w5_odd/ckpt run
chmod -R u+w run
: >"$(find run -name '*pp_rank_1_*optim_states.pt')"
ckpt doctor --fix-latest run; echo $?
cat run/latest; echo
# A tag folder has none.
ckpt doctor --fix-latest run/global_step*
