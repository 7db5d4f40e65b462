# SPDX-License-Identifier: Apache-2.0
# Megatron's ranks must agree in settings and schedule; what else a rank has is kept, or a message names it.
plant() { # NAME WHERE KIND: the fixture, with one value more, or another number, in the last rank's file
    cp -r "$FIXTURES/mlegacy_gpt2_tp2_pp2/ckpt" "$1"
    chmod -R u+w "$1"
    python3 "$FIXTURES/../hostile/planted.py" --into "$1/iter_0000003/mp_rank_01_001/model_optim_rng.pt" "$2" "$3"
}
plant lr optimizer/optimizer/param_groups/0/lr real
ckpt verify -q lr
ckpt reshard lr lr-out -q
echo "status $?"
ckpt convert lr lr.safetensors -q
echo "status $?"
plant schedule opt_param_scheduler/num_steps integer
ckpt verify -q schedule
plant member optimizer/optimizer text
ckpt verify -q member
echo "status $?"
plant order optimizer/optimizer/param_groups/1/params/0 integer
ckpt reshard order order-out -q
echo "status $?"
plant stray optimizer/optimizer/state text
ckpt reshard stray stray-out -q
plant value optimizer/optimizer/state/0 text
ckpt reshard value value-out -q
plant moment optimizer/optimizer/state/0 like
ckpt reshard moment moment-out -q
plant module model text
ckpt reshard module module-out -q
plant own "" text
ckpt reshard own own-out -q
ckpt tree own-out | grep -B 2 planted
