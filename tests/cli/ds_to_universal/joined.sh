# SPDX-License-Identifier: Apache-2.0
# Tensor-parallel ranks become one: how many there were is rewritten and said, and no contradiction.
ds_to_universal --quiet --input_folder "$FIXTURES"/tp2_z1_w4/ckpt/global_step4 --output_folder uni
echo "status $?"
ckpt tree uni/mp_rank_00_model_states.pt mp_world_size
