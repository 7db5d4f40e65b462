# SPDX-License-Identifier: Apache-2.0
# A shard that is gone: of the tag that `latest` names, then of another one.
cp -r "$FIXTURES"/z1_bf16_w2_tags/ckpt run
chmod -R u+w run
rm run/global_step2/*pp_rank_1_*optim_states.pt
ckpt doctor run; echo $?
ckpt doctor -q run; echo $?
echo first >run/latest
ckpt doctor run; echo $?
