# SPDX-License-Identifier: Apache-2.0
# --weights takes an average that a program saved beside its model, or computes what a schedule-free optimizer evaluates.
whole=$FIXTURES/whole_dicts
try() {
    echo "-- $*"
    ckpt convert -f "$@" >said
    echo "status $?"
    sed 's/ in .*//' said
}
try "$whole/ema.pt" a.safetensors --weights ema
ckpt convert -q --include 'model_ema.*' "$whole/ema.pt" b.safetensors && ckpt diff a.safetensors b.safetensors
try "$whole/ema.pt" a.safetensors --weights model_ema
try "$whole/ema.pt" a.safetensors --weights model
try "$whole/ema.pt" a.safetensors --weights teacher
# a list of weights has no names
try "$whole/shadow.pt" a.safetensors --weights ema
try "$whole/ema.pt" run --to zero --weights ema
try "$whole/ema.pt" a.safetensors --weights ema --with-optimizer
try "$FIXTURES/z2_bf16_w2_muon/ckpt" a.safetensors --weights ema
try "$FIXTURES/z2_bf16_w2_muon/ckpt" a.safetensors --weights schedule-free

PYTHONPATH=$FIXTURES/../cli python3 - <<'END'
from ds_tiny import filled, save

def group(beta=0.5, **more):
    return {'lr': 1e-3, 'betas': (beta, 0.99), 'k': 7, 'weight_sum': 0.5, 'params': [0], **more}

def run(name, group, **state):
    state = {key: filled(*how) for key, how in state.items()}
    save({'model': {'w': filled((4, 2), 0.5)}, 'optimizer': {'state': {0: state}, 'param_groups': [group]}}, name + '.pt')

second = {'exp_avg_sq': ((4, 2), 2.0)}
run('trains', group(train_mode=True), z=((4, 2), 2.0), **second)
run('evaluates', group(train_mode=False), z=((4, 2), 1.0), **second)
run('no_mode', group(), z=((4, 2), 1.0), **second)
run('no_z', group(train_mode=True), **second)
run('shape', group(train_mode=True), z=((2, 4), 1.0), **second)
run('beta', group(0.0, train_mode=True), z=((4, 2), 1.0), **second)
run('reference', group(train_mode=True), z=((4, 2), 1.0), x=((4, 2), 1.0), **second)
half, full = filled((4, 2), 0.5), filled((4, 2), 1.0)
save({'w': half, 'v': half, 'bias': filled((3,), 1.0), 'ema.module.w': full, 'ema.module.v': full}, 'partly.pt')
save({'w': half, 'v': half, 'ema.w': full, 'ema.v': full, 'swa.w': half, 'swa.v': full}, 'two.pt')
save({'w': half, 'v': half, 'u': half, 'ema.w': full, 'ema.v': full, 'ema.u': filled((2, 4), 1.0)}, 'reshaped.pt')
# a module of the model that has such a name; a value that is no weight; a copy of a third; a tied pair with one copy
one = lambda: filled((4, 2), 0.5)
save({'w': half, 'avg_pool.weight': one(), 'scale': filled((), 1.0), 'ema.w': full, 'ema.avg_pool.weight': one(), 'ema.updates': filled((), 1.0)}, 'named.pt')
save({'w': half, 'v': one(), 'u': one(), 'ema.w': full}, 'third.pt')
save({'head': half, 'table': half, 'u': one(), 'ema.table': full, 'ema.u': one()}, 'torn.pt')
run('never', group(train_mode=True))
run('both', group(train_mode=True, momentum=0.9), z=((4, 2), 2.0), **second)
END
ckpt convert -q trains.pt x.safetensors
for f in trains evaluates no_mode no_z shape beta both never reference; do
    try $f.pt x.safetensors --weights schedule-free
done
ckpt convert -qf trains.pt x.npz --weights schedule-free
python3 -c '
import struct, zipfile
print(struct.unpack("<8f", zipfile.ZipFile("x.npz").read("w.npy")[-32:]))'
for f in partly two reshaped named third torn; do
    try $f.pt x.safetensors --weights ema
done
try two.pt x.safetensors --weights swa
ckpt ls x.safetensors
# an optimizer that numbers its parameters needs their order
try trains.pt x.safetensors --weights ema --order stored
printf 'w\n' >order
try trains.pt x.safetensors --weights schedule-free --order order
# an average that counts its updates, and has none yet
PYTHONPATH=$FIXTURES/../cli python3 - <<'END'
from ds_tiny import filled, save, scalar

one = lambda: {'w': filled((4, 2), 0.5), 'v': filled((3,), 1.0)}
for n in 0, 1:
    save({'model': one(), 'ema': {'n_averaged': scalar(n), **{'module.' + k: v for k, v in one().items()}}}, 'torch%d.pt' % n)
    save({**one(), 'ema.n_averaged': scalar(n), **{'ema.module.' + k: v for k, v in one().items()}}, 'flat%d.pt' % n)
    save({'model': one(), 'ema': {'n_averaged': scalar(n, True), **one()}}, 'short%d.pt' % n)
    save({'model': one(), 'ema': {'num_updates': n, **one()}}, 'number%d.pt' % n)
END
for f in torch0 torch1 flat0 flat1 short0 short1 number0 number1; do
    try $f.pt x.safetensors --weights ema
done
