# SPDX-License-Identifier: Apache-2.0
# Runs of ZeRO go on in Megatron-Core, with masters and moments, and back: identical values.
F=$FIXTURES
run=$F/hf_trainer_llama_z3_bf16_w2/ckpt
ckpt reshard -q "$run" mcore --to megatron
find mcore -type f | sort
ckpt ls mcore | grep -v norm
ckpt tree mcore | sed -n '/^  optimizer: /,/^  run_lr/p'
ckpt tree mcore | sed -n '/^  opt_param_scheduler/,/wd_incr_steps/p'
ckpt verify -q mcore
# Megatron-LM compares these with its own sizes, and resumes from the iteration's own folder only
ckpt tree mcore | grep _model_parallel_size
for tag in iter_0000007 iter_4 release; do
    ckpt reshard "$run" no --to megatron --to-tag $tag 2>&1 | grep -e "'iter" -e --to-tag
done
ckpt reshard -q mcore zero --to zero --stage 3 --world 2 --map torch_dist:megatron:hf
ckpt diff --with-optimizer "$run" zero
# a run that states no batch size, and has an empty parameter group
ckpt reshard "$F"/hf_trainer_fsdp1_full_w2/ckpt fsdp --to megatron 2>&1 | grep -e num_steps -e 'left out'
# a run of Megatron stays what it is
own=$F/mcore_llama_distopt_dp2/ckpt
ckpt reshard -q "$own" same --to megatron --world 2 && ckpt diff --with-optimizer "$own" same
# a value in the module's dict that is no tensor has no name in a layout map
cp -r "$run" planted && chmod -R u+w planted
for rank in 0 1; do
    python3 "$FIXTURES"/../hostile/planted.py --into planted/global_step4/zero_pp_rank_${rank}_mp_rank_00_model_states.pt module text
done
ckpt reshard -q planted planted.mcore --to megatron
