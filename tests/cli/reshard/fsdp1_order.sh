# SPDX-License-Identifier: Apache-2.0
# FSDP1's optimizer lists its parameters unit by unit, and first what is in no unit; DeepSpeed and torch's numbers go by the
# order of the model, which stands in the same file.
cat >make.py <<'EOP'
import os, sys
sys.path.insert(0, os.environ['FIXTURES'] + '/../cli')
from ds_tiny import filled, save, scalar

MODEL = ['wte.w', 'h.0.w', 'h.0.b', 'h.1.w', 'h.1.b', 'ln.w', 'head.w']
UNITS = ['wte.w', 'ln.w', 'head.w', 'h.0.w', 'h.0.b', 'h.1.w', 'h.1.b']
ODD = ['wte.w', 'h.0.w', 'ln.w', 'h.0.b', 'h.1.w', 'h.1.b', 'head.w']


def numbered(path, names):
    """Numbers are positions in the optimizer; param_names (torch 2.6) tells which parameters they are."""
    size = {n: MODEL.index(n) + 2 for n in MODEL}
    state = {i: {'step': scalar(3.0), 'exp_avg': filled((size[n],), .1), 'exp_avg_sq': filled((size[n],), .01)}
             for i, n in enumerate(names)}
    save({'model': {n: filled((size[n],), 1.0) for n in MODEL},
          'optim': {'state': state, 'param_groups': [dict(lr=.1, betas=(.9, .999), eps=1e-8, weight_decay=.0,
                                                          params=list(range(len(names))), param_names=names)]}}, path)


def run(path, model, *groups):
    size = {n: MODEL.index(n) + 2 for n in MODEL}
    state = {n: {'step': scalar(3.0), 'exp_avg': filled((size[n],), .1), 'exp_avg_sq': filled((size[n],), .01)}
             for g in groups for n in g}
    save({'model': {n: filled((size[n],), 1.0) for n in model},
          'optim': {'state': state, 'param_groups': [dict(lr=.1, betas=(.9, .999), eps=1e-8, weight_decay=.0, params=g)
                                                     for g in groups]}}, path)


run('units.pt', MODEL, UNITS)
run('groups.pt', MODEL, [n for n in UNITS if n.endswith('w')], [n for n in UNITS if n.endswith('b')])
run('compiled.pt', UNITS, MODEL)          # get_state_dict of compiled layers: the dict is by units
run('odd.pt', ODD, ODD)
run('first.pt', MODEL, MODEL[-1:] + MODEL[:-1])
numbered('numbered.pt', MODEL[-1:] + MODEL[:-1])
numbered('numbered_units.pt', UNITS)
run('either.pt', ['wte.w', 'ln.w', 'head.w'], ['wte.w', 'head.w', 'ln.w'])
EOP
cat >show.py <<'EOP'
import glob, re, sys, zipfile
path = (glob.glob(sys.argv[1] + '/*/mp_rank_00_model_states.pt') + glob.glob(sys.argv[1] + '/*/optim_world_size_*_rank_0.pt') +
        glob.glob(sys.argv[1] + '/*/zero_pp_rank_0_mp_rank_00_model_states.pt'))[0]
z = zipfile.ZipFile(path)
data = z.read(next(n for n in z.namelist() if n.endswith('data.pkl')))
names = [n.decode() for n in re.findall(rb'(?:wte|ln|head|h\.\d)\.[wb]', data[data.index(sys.argv[2].encode()):])]
print(*dict.fromkeys(names))
EOP
python3 make.py
for name in units groups compiled; do
    for stage in 1 2 3; do
        ckpt reshard -q $name.pt $name.$stage --world 2 --stage $stage && python3 show.py $name.$stage param_shapes
    done
    ckpt reshard -q --strict $name.pt $name.ranks --world 2 --to fsdp-ranks && python3 show.py $name.ranks param_names
done
ckpt reshard units.pt noted --world 1 --stage 1 2>&1 | grep FSDP1
echo "-- a list wins, in its groups; names that are not trained are passed over"
printf '%s\n' head.w h.1.b h.1.w h.0.b h.0.w ln.w wte.w >list
ckpt reshard -q groups.pt list.zero --stage 1 --world 2 --order list && python3 show.py list.zero param_shapes
ckpt reshard -q groups.pt list.ranks --to fsdp-ranks --world 2 --order list && python3 show.py list.ranks param_names
printf '%s\n' head.w '*' >first
ckpt reshard -q units.pt list.first --world 1 --stage 1 --order first && python3 show.py list.first param_shapes
printf '%s\n' head.w wte.w >short
ckpt reshard -q units.pt list.short --world 1 --stage 1 --order short
ckpt reshard -q units.pt list.dcp --world 2 --to dcp --order list
printf "%s\n" "*" head.w "*" >stars
ckpt reshard -q units.pt x --world 1 --stage 1 --order stars
echo "-- no order can be the model's: it is asked for, where a reader goes by position"
ckpt reshard -q odd.pt odd.zero --world 1 --stage 1
ckpt reshard -q odd.pt odd.ranks --world 2 --to fsdp-ranks
ckpt reshard -q odd.pt odd.dcp --world 2 --to dcp
ckpt reshard -q odd.pt odd.list --world 1 --stage 1 --order list && python3 show.py odd.list param_shapes
echo "-- either order can be"
ckpt reshard -q either.pt either --world 1 --stage 1 || echo "status $?"
ckpt reshard -q first.pt head --world 1 --stage 1 || echo "status $?"
ckpt reshard -q first.pt head.zero --world 1 --stage 1 --order stored && python3 show.py head.zero param_shapes
echo "-- numbers are positions, whichever order they have"
for name in numbered numbered_units; do
    ckpt reshard --strict -q $name.pt $name.zero --world 1 --stage 1 && python3 show.py $name.zero param_shapes
    ckpt reshard --strict -q $name.pt $name.ranks --world 2 --to fsdp-ranks && python3 show.py $name.ranks param_names
done
ls
