# SPDX-License-Identifier: Apache-2.0
# The statistics of a batch norm have the shape of its weight, and are no parameters: an optimizer by number does not count them.
cat >make.py <<'EOP'
import os, sys
sys.path.insert(0, os.environ['FIXTURES'] + '/../cli')
from ds_tiny import filled, save, scalar

NAMES = ['conv.weight', 'bn.weight', 'bn.bias', 'bn.running_mean', 'bn.running_var', 'bn.num_batches_tracked', 'fc.weight']
TRAINED = [n for n in NAMES if 'running' not in n and 'tracked' not in n]
size = {n: (4, 3) if n in ('conv.weight', 'fc.weight') else (4,) for n in NAMES}
model = {n: scalar(7.0) if 'tracked' in n else filled(size[n], 1.0) for n in NAMES}
state = {i: {'step': scalar(3.0), 'exp_avg': filled(size[n], .1 + i), 'exp_avg_sq': filled(size[n], .01)}
         for i, n in enumerate(TRAINED)}
save({'model': model, 'optim': {'state': state, 'param_groups': [
    dict(lr=.1, betas=(.9, .999), eps=1e-8, weight_decay=.0, params=list(range(len(TRAINED))))]}}, 'run.pt')
EOP
python3 make.py
ckpt reshard -q run.pt zero --world 2 --stage 2 && ckpt tree zero/*/mp_rank_00_model_states.pt | grep 'buffer_names\|running\|frozen'
ckpt convert -q --with-optimizer run.pt named.safetensors && ckpt ls named.safetensors | grep exp_avg/
