# SPDX-License-Identifier: Apache-2.0
# A run of one rank at stage 3 without its only model file: the loss is named, whatever reads it.
ckpt reshard "$FIXTURES/z3_bf16_w5_odd/ckpt" run --world 1 -q
rm run/global_step*/zero_pp_rank_0_mp_rank_00_model_states.pt
for verb in "verify" "doctor" "doctor --deep" "ls"; do
    echo "-- $verb"
    # shellcheck disable=SC2086
    ckpt $verb run
    echo "status $?"
done
