# SPDX-License-Identifier: Apache-2.0
# Thousands of parameter groups, each second one empty: settings and entries that only empty ones have are named, and soon.
PYTHONPATH=$FIXTURES/../cli python3 - <<'END'
from ds_tiny import filled, save

def run(name, n, tail):
    params = [filled((i + 1,), 1.0) for i in range(n // 2)]
    groups = [{'params': [g // 2] if g % 2 else [], 'lr': 0.1, 'betas': (0.9, 0.99), 'eps': 1e-8, 'weight_decay': 0.0,
               **({} if g % 2 else {'empty%d' % k: 1 for k in range(4)})} for g in range(n)]
    state = {i: {'step': filled((), 3.0), 'exp_avg': p, 'exp_avg_sq': p} for i, p in enumerate(params)}
    save({'model': {'w.%d.weight' % i: p for i, p in enumerate(params)}, 'optimizer': {'state': state, 'param_groups': groups},
          'lr_scheduler': {'base_lrs': [list(range(tail)) + [g // 2 if g > 3 else g] for g in range(n)], '_last_lr': [0.1] * n}}, name + '.pt')

run('few', 6, 1)
run('many', 6000, 100)
END
ckpt reshard -q few.pt run --to zero --world 1 --stage 1
echo "status $?"
timeout 20 ckpt reshard -q -f many.pt run --to zero --world 1 --stage 1 2>said
echo "status $?"
wc -l <said
# a step count of shape [1] is no moment: each rank keeps it whole
PYTHONPATH=$FIXTURES/../cli python3 - <<'END'
from ds_tiny import filled, save

state = {i: {'step': filled((1,), 3.0), 'exp_avg': filled((4,), 1.0 + i), 'exp_avg_sq': filled((4,), 2.0 + i)} for i in range(3)}
save({'model': {'w.%d.weight' % i: filled((4,), 0.5 + i) for i in range(3)},
      'optimizer': {'state': state, 'param_groups': [{'params': [0, 1, 2], 'lr': 0.1, 'betas': (0.9, 0.99), 'eps': 1e-8}]}}, 'steps.pt')
END
ckpt reshard -q steps.pt ranks --to fsdp-ranks --world 2 && ckpt diff --with-optimizer steps.pt ranks
