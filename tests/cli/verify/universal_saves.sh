# SPDX-License-Identifier: Apache-2.0
# Model files of a universal checkpoint: one for each rank, all of one save.
ckpt convert -q "$FIXTURES"/z3_bf16_w5_odd/ckpt whole --to universal
dir=whole/$(cat whole/latest_universal)
try() {
    echo "== $1"
    ckpt verify --strict whole
    echo "verify --strict: $?"
}
try 'whole'
cp "$dir"/zero_pp_rank_0_mp_rank_00_model_states.pt kept
python3 "$FIXTURES"/../cli/other_step.py "$dir"/zero_pp_rank_0_mp_rank_00_model_states.pt global_steps
try 'rank 0 is of another save'
# as stage 3 writes them, without files of whole ranks
rm "$dir"/mp_rank_00_model_states.pt
for rank in 0 1 2; do
    cp kept "$dir"/zero_pp_rank_${rank}_mp_rank_00_model_states.pt
done
try 'three ranks'
python3 "$FIXTURES"/../cli/other_step.py "$dir"/zero_pp_rank_2_mp_rank_00_model_states.pt global_steps
try 'rank 2 is of another save'
cp kept "$dir"/zero_pp_rank_2_mp_rank_00_model_states.pt
rm "$dir"/zero_pp_rank_1_mp_rank_00_model_states.pt
try 'without rank 1'
rm "$dir"/zero_pp_rank_0_mp_rank_00_model_states.pt
try 'without rank 0'
# the files of tensor-parallel ranks
mv "$dir"/zero_pp_rank_2_mp_rank_00_model_states.pt "$dir"/mp_rank_00_model_states.pt
cp kept "$dir"/mp_rank_01_model_states.pt
python3 "$FIXTURES"/../cli/other_step.py "$dir"/mp_rank_01_model_states.pt global_steps
echo "== a tensor-parallel rank of another save"
ckpt convert -q --strict whole out --to safetensors
echo "convert: $?"
