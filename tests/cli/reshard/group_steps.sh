# SPDX-License-Identifier: Apache-2.0
# Optimizers that count their steps in a group's settings: apex's FusedAdam, and schedule-free ones.
PYTHONPATH=$FIXTURES/../cli python3 - <<'END'
from ds_tiny import filled, save

for name, count in ('apex', {'step': 7}), ('free', {'k': 7, 'weight_sum': 0.5}), ('other', {'k': 7}):
    moments = {kind: filled((4, 2), at + 0.25) for at, kind in enumerate(('exp_avg', 'exp_avg_sq'))}
    group = {'lr': 1e-3, 'betas': (0.9, 0.99), 'eps': 1e-8, 'weight_decay': 0.0, **count, 'params': [0]}
    save({'model': {'emb.weight': filled((4, 2), 0.5)}, 'optimizer': {'state': {0: moments}, 'param_groups': [group]}}, name + '.pt')
END
# `k` alone may be a setting, so the run of the last one begins at step 0
for f in apex free other; do
    ckpt reshard -q $f.pt $f --stage 2 --world 1 && ckpt info $f | grep '^step '
done
