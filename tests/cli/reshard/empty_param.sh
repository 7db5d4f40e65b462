# SPDX-License-Identifier: Apache-2.0
# Trained parameters without elements: DeepSpeed's ZeRO counts them as frozen from 0.19.8 on, before that as any other.
make=$FIXTURES/../cli/ds_tiny.py
python3 "$make" run empty
for stage in 1 2 3; do
    for version in 0.19.7 0.19.8; do
        echo "== stage $stage of $version"
        ckpt reshard -q -w 2 -s $stage --deepspeed-version $version run $stage.$version
        ckpt tree $stage.$version model_states.param_shapes
        ckpt tree $stage.$version model_states.frozen_param_shapes
        ckpt diff --with-optimizer run $stage.$version
        ckpt verify -q $stage.$version
    done
done
ckpt reshard -w 1 -s 2 run said 2>&1 | grep without
echo "== universal"
ds_to_universal --quiet --input_folder run/global_step4 --output_folder uni
ls uni/zero/void
ckpt tree uni/mp_rank_00_model_states.pt frozen_param_shapes
