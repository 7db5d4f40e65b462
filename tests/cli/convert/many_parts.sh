# SPDX-License-Identifier: Apache-2.0
# A dict with many optimizers beside its model: each tensor is counted once, and the message names some of them.
PYTHONPATH=$FIXTURES/../cli python3 - <<'END'
from ds_tiny import filled, save

moment = filled((2,), 1.0)
parts = {'opt%d' % i: {'state': {0: {'exp_avg': moment}}, 'param_groups': [{'params': [0], 'lr': 0.1}]} for i in range(12000)}
save({'model': {'a.w': filled((2,), 0.5), 'a.b': filled((2,), 2.0)}, **parts}, 'many.pt')
save({'model': {'a.w': moment}, 'opt': {'state': {0: {'exp_avg': moment}}, 'param_groups': [{'params': [0]}]}, 'counter': moment}, 'few.pt')
END
for name in many few; do
    timeout 20 ckpt convert $name.pt out.safetensors --force >said
    echo "status $?"
    ckpt ls out.safetensors
done
