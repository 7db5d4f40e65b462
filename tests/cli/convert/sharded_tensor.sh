# SPDX-License-Identifier: Apache-2.0
# One rank's file of FSDP's sharded state: what it is, that other ranks hold the rest, and what to do.
cat >make.py <<'EOF'
import sys, types, pickle, zipfile

for protocol, place in (2, 'torch.distributed._shard.sharded_tensor.api'), (4, 'torch.distributed._sharded_tensor.api'):
    for part in range(1, place.count('.') + 2):
        name = '.'.join(place.split('.')[:part])
        sys.modules.setdefault(name, types.ModuleType(name))

    class ShardedTensor:
        class ProcessGroupState:
            pass

    ShardedTensor.__module__ = ShardedTensor.ProcessGroupState.__module__ = place
    ShardedTensor.__qualname__ = 'ShardedTensor'
    ShardedTensor.ProcessGroupState.__qualname__ = 'ShardedTensor.ProcessGroupState'
    sys.modules[place].ShardedTensor = ShardedTensor
    tensor = ShardedTensor()
    tensor.state = ShardedTensor.ProcessGroupState()
    with zipfile.ZipFile('p%d.pt' % protocol, 'w', zipfile.ZIP_STORED) as archive:
        archive.writestr('a/data.pkl', pickle.dumps({'fc.weight': tensor}, protocol))
        archive.writestr('a/version', '3\n')
EOF
python3 make.py
for f in p2.pt p4.pt; do
    ckpt convert $f all.safetensors
    echo "convert: $?"
    ckpt verify $f
    echo "verify: $?"
done
ls
