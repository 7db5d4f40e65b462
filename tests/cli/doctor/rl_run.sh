# SPDX-License-Identifier: Apache-2.0
# Runs of verl and SkyRL: a step is whole when each of its models is; their trackers, which can be set right.
for step in 1 2 10; do
    mkdir -p run/global_step_$step
    cp -r "$FIXTURES/rl_verl_fsdp1_w2/ckpt" run/global_step_$step/actor
    cp -r "$FIXTURES/rl_verl_fsdp1_w2/ckpt" run/global_step_$step/critic
done
chmod -R u+w run
printf 10 >run/latest_checkpointed_iteration.txt
ckpt doctor run
echo "whole: $?"
printf 2 >run/latest_checkpointed_iteration.txt
ckpt doctor run
echo "stale: $?"
printf 3 >run/latest_checkpointed_iteration.txt
ckpt doctor run
echo "missing step: $?"
rm run/global_step_10/critic/model_world_size_2_rank_1.pt
printf 10 >run/latest_checkpointed_iteration.txt
ckpt doctor run
echo "unfinished: $?"
ckpt doctor run/global_step_10
echo "a step: $?"
ckpt doctor -q --fix-latest run
echo "fixed: $?"
cat run/latest_checkpointed_iteration.txt
echo
printf x >run/latest_checkpointed_iteration.txt
ckpt doctor -q run
echo "no number: $?"
rm run/latest_checkpointed_iteration.txt
ckpt doctor -q run
echo "none: $?"
# SkyRL's
for step in 1 2 10; do mv run/global_step_$step/actor run/global_step_$step/policy; done
mkdir run/global_step_11
printf 11 >run/latest_ckpt_global_step.txt
rm -r run/global_step_2/critic/*
ckpt doctor run
echo "empty: $?"
ckpt doctor --fix-latest .
echo "fixed: $?"
cat run/latest_ckpt_global_step.txt
echo
