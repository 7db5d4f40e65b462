# SPDX-License-Identifier: Apache-2.0
# FSDP's files of each rank that lie: about placements, meshes, shards, sizes, or that are of another save.
cat >make.py <<'EOF'
import os, pickle, shutil, struct, zipfile

class named:
    """A function or class that is pickled by name alone."""
    def __init__(self, place, name):
        self.text = ('c%s\n%s\n' % (place, name)).encode()

class Call:
    """f(*args), with what BUILD gives it."""
    def __init__(self, f, *args, state=None, new=False):
        self.parts = (f, args, state, new)

class Storage:
    def __init__(self, kind, values):
        self.kind, self.values = kind, values

class Pickler(pickle._Pickler):
    def save(self, value, save_persistent_id=True):
        if isinstance(value, named):
            self.write(value.text)
        elif isinstance(value, Call):
            f, args, state, new = value.parts
            self.save(f), self.save(args)
            self.write(pickle.NEWOBJ if new else pickle.REDUCE)
            if state is not None:
                self.save(state)
                self.write(pickle.BUILD)
        elif isinstance(value, Storage):
            key = str(len(self.records))
            self.records.append(struct.pack('<%d%s' % (len(value.values), 'f' if value.kind == 'FloatStorage' else 'q'), *value.values))
            self.save(('storage', named('torch', value.kind), key, 'cpu', len(value.values)))
            self.write(pickle.BINPERSID)
        else:
            super().save(value)

def write(path, value):
    with open('data.pkl', 'wb') as f:
        p = Pickler(f, 2)
        p.records = []
        p.dump(value)
    with zipfile.ZipFile(path, 'w', zipfile.ZIP_STORED) as z:
        z.write('data.pkl', 'a/data.pkl')
        for i, r in enumerate(p.records):
            z.writestr('a/data/%d' % i, r)
        z.writestr('a/version', '3\n')
    os.remove('data.pkl')

def strides(shape):
    out, n = [], 1
    for s in reversed(shape):
        out.insert(0, n)
        n *= s
    return tuple(out)

def tensor(shape, values, kind='FloatStorage'):
    return Call(named('torch._utils', '_rebuild_tensor_v2'), Storage(kind, values), 0, tuple(shape), strides(shape), False,
                Call(named('collections', 'OrderedDict')))

def built(place, name, **members):
    return Call(named(place, name), state=members, new=True)

TYPES, D = 'torch.distributed.tensor.placement_types', named('torch.distributed.tensor', 'DTensor')
def shard(dim): return built(TYPES, 'Shard', dim=dim)
def strided(dim, factor): return built(TYPES, '_StridedShard', dim=dim, split_factor=factor)
REPLICATE, PARTIAL = built(TYPES, 'Replicate'), built(TYPES, 'Partial', reduce_op='sum')

def wrapped(cls, size, state):
    return Call(named('torch._tensor', '_rebuild_from_type_v2'), named('torch._utils', '_rebuild_wrapper_subclass'), cls,
                (cls, named('torch', 'float32'), tuple(size), strides(size), 0, None, None, False), state)

def dtensor(rank, size=(4, 2), rows=2, placements=None, mesh=(2,), at=None, local=None, first=0, order=None):
    shape = (rows,) + tuple(size[1:]) if local is None else local
    n = 1
    for s in shape:
        n *= s
    m = built('torch.distributed.device_mesh', 'DeviceMesh', device_type='cpu', mesh=tensor(mesh, [0] * max(1, min(4, mesh[0])), 'LongStorage')
              if mesh[0] < 5 else None, _coordinate_on_dim=at or [rank], _layout=built('torch.distributed._mesh_layout', '_MeshLayout', shape=mesh))
    spec = dict(mesh=m, placements=tuple(placements or [shard(0)]))
    if order:
        spec['shard_order'] = order
    return wrapped(D, size, (None, {'_local_tensor': tensor(shape, [float(first + i) for i in range(n)]),
                                    '_spec': Call(named('torch.distributed.tensor._dtensor_spec', 'DTensorSpec'), state=spec, new=True)}))

S = named('torch.distributed._shard.sharded_tensor.api', 'ShardedTensor')
def sharded(start, rows, size=(4, 2)):
    meta = Call(named('torch.distributed._shard.metadata', 'ShardMetadata'), new=True, state=(None, dict(shard_offsets=[start, 0], shard_sizes=[rows, 2])))
    one = Call(named('torch.distributed._shard.sharded_tensor.shard', 'Shard'), new=True,
               state=(None, dict(tensor=tensor((rows, 2), [1.0] * (2 * rows)), metadata=meta)))
    return wrapped(S, size, ([one], None, None, None, []))

def case(name, make, world=2):
    os.mkdir(name)
    for r in range(world):
        files = make(r)
        for kind, value in (files if isinstance(files, dict) and 'model' in files else {'model': {'w': files}}).items():
            write('%s/%s_world_size_%d_rank_%d.pt' % (name, kind, world, r), value)

def optimizer(rank, params=(0,), step=3.0, extra=None, **more):
    state = {params[0]: dict({'step': tensor((), [step]), 'exp_avg': dtensor(rank)}, **more)}
    return {'model': {'w': dtensor(rank)}, 'optim': {'state': state, 'param_groups': [dict(lr=0.1 + (extra or 0), params=list(params))]}}

case('good', lambda r: dtensor(r, first=4 * r))
case('no_such_axis', lambda r: dtensor(r, placements=[shard(5)]))
case('other_axis', lambda r: dtensor(r, placements=[shard(1)]))
case('large_mesh', lambda r: dtensor(r, mesh=(4,)))
case('huge_mesh', lambda r: dtensor(r, mesh=(2**40, 2**40), at=[0, r], placements=[shard(0), shard(0)]))
case('outside_mesh', lambda r: dtensor(r, at=[7]))
case('same_rank', lambda r: dtensor(0))
case('partial', lambda r: dtensor(r, placements=[PARTIAL], rows=4))
case('too_few_placements', lambda r: dtensor(r, placements=[shard(0), shard(1)]))
case('copies_differ', lambda r: dtensor(r, placements=[REPLICATE], rows=4, first=r))
case('no_order', lambda r: dtensor(r, mesh=(2, 1), at=[r, 0], placements=[strided(0, 3), shard(0)]))
case('order_twice', lambda r: dtensor(r, mesh=(2, 1), at=[r, 0], placements=[shard(0), shard(0)], order=((0, (0, 0)),)))
case('huge_size', lambda r: dtensor(r, size=(2**62, 2**62), local=(2, 2)))
case('long_size', lambda r: dtensor(r, size=(10**30, 2), local=(2, 2)))
case('minus', lambda r: dtensor(r, size=(-4, 2), local=(2, 2)))
case('overflow', lambda r: dtensor(r, size=(4, 2**63 - 1, 2**63 - 1), local=(0, 2**63 - 1, 2**63 - 1)))
case('overlap', lambda r: sharded(r, 3))
case('hole', lambda r: sharded(3 * r, 1))
case('outside', lambda r: sharded(2**63 - 1 if r else 0, 2))
case('other_names', lambda r: {'model': {'w': dtensor(r), **({'v': dtensor(r)} if r else {})}})
case('other_sizes', lambda r: dtensor(r, size=(4 + r, 2), rows=2))
case('not_a_tensor', lambda r: {'model': {'w': built('torch.distributed.tensor', 'Something', a=1)}})
case('runs_code', lambda r: {'model': {'w': Call(named('posix', 'system'), 'touch ran')}})
case('optimizer', lambda r: optimizer(r))
case('other_groups', lambda r: optimizer(r, extra=r))
case('numbers', lambda r: optimizer(r, params=(7,)))
case('huge_number', lambda r: optimizer(r, params=(10**30,)))
case('steps_differ', lambda r: optimizer(r, step=3.0 + r))
case('numbers_kept', lambda r: optimizer(r, step=7, kept=12, rate=0.5, name='x'))
case('numbers_differ', lambda r: optimizer(r, kept=12 + r))
case('lists_kept', lambda r: optimizer(r, kept=[12]))
case('other_schedule', lambda r: dict(optimizer(r), extra_state=dict(lr_scheduler=dict(last_epoch=3 + r))))
case('two_worlds', lambda r: dtensor(r))
shutil.copy('two_worlds/model_world_size_2_rank_0.pt', 'two_worlds/model_world_size_3_rank_0.pt')
case('no_rank_1', lambda r: dtensor(r))
os.remove('no_rank_1/model_world_size_2_rank_1.pt')
case('surplus', lambda r: dtensor(r))
shutil.copy('surplus/model_world_size_2_rank_1.pt', 'surplus/model_world_size_2_rank_2.pt')
EOF
python3 make.py
ckpt convert -q good good.safetensors && ckpt cat good.safetensors w
for f in */; do
    ckpt verify -q "${f%/}" >said 2>&1
    echo "${f%/}: $?"
    sed -n 1p said
done
ckpt reshard -q --stage 1 steps_differ out
echo "reshard: $?"
# numbers of a parameter go where the distributed checkpoint has them, and come back
ckpt reshard -q --to dcp numbers_kept dcp
ckpt reshard -q --to fsdp-ranks dcp ranks
ckpt reshard -q --stage 1 ranks zero
for at in dcp/* ranks/* zero/*; do ckpt tree "$at" | grep -E ' (step: 7|kept: 12|rate: 0.5|name: .x)'; done
ls ran 2>/dev/null
