# SPDX-License-Identifier: Apache-2.0
# Megatron-LM with Transformer Engine: its modules' own state is no weight, and is named when it is left out.
cat >make.py <<'EOF'
import argparse, os, pickle, struct, sys, types, zipfile
from collections import OrderedDict

for name in 'torch', 'torch._utils':
    sys.modules[name] = types.ModuleType(name)


class Storage:
    pass


def rebuild(*a):
    pass


for cls, module, name in (Storage, 'torch', 'FloatStorage'), (rebuild, 'torch._utils', '_rebuild_tensor_v2'):
    cls.__module__, cls.__qualname__, cls.__name__ = module, name, name
    setattr(sys.modules[module], name, cls)


class Ref:
    def __init__(self, key, n):
        self.key, self.n = key, n


class Tensor:
    n = 0

    def __init__(self, *shape):
        self.shape, self.key = shape, str(Tensor.n)
        Tensor.n += 1

    def __reduce__(self):
        size = 1
        for k in self.shape:
            size *= k
        stride = tuple(self.shape[i + 1] if i + 1 < len(self.shape) else 1 for i in range(len(self.shape)))
        return rebuild, (Ref(self.key, size), 0, self.shape, stride, False, OrderedDict())


class Pickler(pickle.Pickler):
    def persistent_id(self, o):
        if isinstance(o, Ref):
            stored[o.key] = o.n
            return ('storage', Storage, o.key, 'cpu', o.n)


stored = {}
layer = 'decoder.layers.0.'
model = {'embedding.word_embeddings.weight': Tensor(8, 4), layer + 'mlp.linear_fc1.weight': Tensor(8, 4),
         layer + 'mlp.linear_fc1._extra_state': Tensor(3), layer + 'mlp.linear_fc2.weight': Tensor(4, 8),
         layer + 'mlp.linear_fc2._extra_state': Tensor(3), 'decoder.final_layernorm.weight': Tensor(4)}
args = argparse.Namespace(tensor_model_parallel_size=1, pipeline_model_parallel_size=1, num_layers=1, world_size=1)
os.makedirs('run/iter_0000002/mp_rank_00')
open('run/latest_checkpointed_iteration.txt', 'w').write('2')
with zipfile.ZipFile('run/iter_0000002/mp_rank_00/model_optim_rng.pt', 'w', zipfile.ZIP_STORED) as z:
    with z.open('archive/data.pkl', 'w') as f:
        Pickler(f, 2).dump({'args': args, 'checkpoint_version': 3.0, 'iteration': 2, 'model': model})
    for key, n in stored.items():
        z.writestr('archive/data/' + key, struct.pack('<%df' % n, *range(n)))
    z.writestr('archive/version', '3\n')
EOF
python3 make.py
ckpt ls run
ckpt convert run out.safetensors
echo $?
ckpt convert --strict run strict.safetensors
echo $?
