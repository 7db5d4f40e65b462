# SPDX-License-Identifier: Apache-2.0
# The Trainer's FSDP1 with use_orig_params=False has a group without parameters, which DeepSpeed drops: so does what goes there,
# with the group's entries in the schedule.  Other targets keep it.
src="$FIXTURES"/hf_trainer_fsdp1_full_w2/ckpt
ckpt reshard -q "$src" zero --world 2 --stage 2
ckpt tree zero/global_step*/mp_rank_00_model_states.pt | grep 'param_shapes: list\|base_lrs\|_last_lr\|lr_lambdas'
ckpt reshard "$src" universal --to universal 2>&1 | grep groups
ckpt reshard "$src" dcp --to dcp --world 2 2>&1 | grep -c 'left out 1 of 2'
ckpt diff --with-optimizer "$src" zero
# what only the empty group has is named
cp -r "$src" more && chmod -R u+w more
plant() {
    "${PYTHON:-python3}" "$FIXTURES/../hostile/planted.py" --into "$@" || exit 1
}
plant more/optimizer.bin param_groups/1 text && plant more/scheduler.pt lr_lambdas/1 text
ckpt reshard -q more again --to zero --world 2 --stage 2
