# SPDX-License-Identifier: Apache-2.0
# A tensor without moments, whose name and neighbours do not show whether it is a parameter: stage 3 stores the two apart.
cat >make.py <<'EOP'
import os, sys
sys.path.insert(0, os.environ['FIXTURES'] + '/../cli')
from ds_tiny import filled, save, scalar

NAMES = ['wte.weight', 'rope.inv_freq', 'fc.weight', 'fc.bias', 'base.weight']
TRAINED = ['wte.weight', 'fc.weight', 'fc.bias']
state = {i: {'step': scalar(3.0), 'exp_avg': filled((4,), .1), 'exp_avg_sq': filled((4,), .01)} for i in range(len(TRAINED))}
groups = [dict(lr=.1, betas=(.9, .999), eps=1e-8, weight_decay=.0, params=TRAINED)]
save({'model': {n: filled((4,), 1.0) for n in NAMES},
      'optimizer': {'state': {n: state[i] for i, n in enumerate(TRAINED)}, 'param_groups': groups}}, 'run.pt')
EOP
python3 make.py
ckpt reshard -q run.pt three --world 2 --stage 3
echo "status $?"
ckpt reshard -q run.pt two --world 2 --stage 2
ckpt reshard -q --strict run.pt strict --world 2 --stage 3
echo "status $?"
