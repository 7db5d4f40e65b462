# SPDX-License-Identifier: Apache-2.0
# Runs of verl and SkyRL: the tracker's step, a tag, a step, several models, a tracker that is wrong.
for n in 2 3; do
	mkdir -p run/global_step_$n/actor
	cp -r "$FIXTURES"/rl_verl_fsdp1_w2/ckpt/. run/global_step_$n/actor
done
printf 2 >run/latest_checkpointed_iteration.txt
what() { ckpt info "$@" | grep -E '^(path|format|tag|model|step) '; }
what run
what run --tag global_step_3
what run --tag 3
what run/global_step_3
ckpt doctor run
mv run/latest_checkpointed_iteration.txt run/latest_ckpt_global_step.txt
what run
ckpt info run --tag 9 || echo "status $?"
printf 5 >run/latest_ckpt_global_step.txt
ckpt info run || echo "status $?"
printf 'x\n' >run/latest_ckpt_global_step.txt
ckpt info run || echo "status $?"
rm run/latest_ckpt_global_step.txt
what run
mkdir run/global_step_3/critic
cp run/global_step_3/actor/model* run/global_step_3/critic
ckpt convert run model.safetensors || echo "status $?"
ckpt reshard -q --world 2 --stage 2 run/global_step_3/actor zero && ls zero
