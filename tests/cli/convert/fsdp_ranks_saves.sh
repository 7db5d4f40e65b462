# SPDX-License-Identifier: Apache-2.0
# Files of ranks of two saves: a rank's weights are those of another, which shows in the optimizer's counts of steps alone.
# Every command refuses them, also those that want weights only.
cat >make.py <<'EOP'
import os, sys
sys.path.insert(0, os.environ['FIXTURES'] + '/../cli')
from ds_tiny import filled, save, scalar

SHAPES = {'a.weight': (3, 2), 'b.weight': (5,)}


def rank(folder, number, step, by, names):
    keys = list(SHAPES) if names else range(len(SHAPES))
    os.makedirs(folder, exist_ok=True)
    save({n: filled(s, by) for n, s in SHAPES.items()}, '%s/model_world_size_2_rank_%d.pt' % (folder, number))
    save({'state': {k: {'step': scalar(step), 'exp_avg': filled(s, .5)} for k, s in zip(keys, SHAPES.values())},
          'param_groups': [{'lr': .1, 'params': list(keys)}]}, '%s/optim_world_size_2_rank_%d.pt' % (folder, number))


for names in False, True:
    rank('one%d' % names, 0, 3.0, 1.0, names)
    rank('one%d' % names, 1, 3.0, 1.0, names)
    rank('two%d' % names, 0, 3.0, 1.0, names)
    rank('two%d' % names, 1, 10.0, 1.0, names)
rank('lost', 0, 3.0, 1.0, True)
rank('lost', 1, 3.0, 1.0, True)
os.remove('lost/optim_world_size_2_rank_1.pt')
EOP
python3 make.py
for f in one0 one1 two0 two1 lost; do
    echo "-- $f"
    ckpt convert -q $f $f.safetensors || echo "convert: $?"
    ckpt ls $f >ls.out || echo "ls: $?"
    ckpt verify $f >verify.out || echo "verify: $?"
    ckpt convert -q --strict $f $f.npz || echo "convert --strict: $?"
done
ls
