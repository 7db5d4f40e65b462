# SPDX-License-Identifier: Apache-2.0
# Client state in forms that a comparison of ranks may trip over: equal values are not named, others are, and it ends soon.
cp -r "$FIXTURES/z3_bf16_w5_odd/ckpt" run
chmod -R u+w run
for rank in 0 1 2 3 4; do
    python3 "$FIXTURES/../cli/client_values.py" run/global_step4/zero_pp_rank_${rank}_mp_rank_00_model_states.pt $rank odd
done
ckpt verify run
ckpt reshard -q run two --world 2
echo "status $?"
ckpt reshard -q run same --world 5
echo "status $?"
