# SPDX-License-Identifier: Apache-2.0
# a file may hold more models than can be compared pair by pair; copies are still found
python3 - <<'END'
import struct, zipfile

def text(s):
    return b'X' + struct.pack('<I', len(s)) + s.encode()

def model(name):
    storage = b'(X\7\0\0\0storagectorch\nFloatStorage\nX\1\0\0\x000X\3\0\0\0cpuK\2tQ'
    tensor = b'ctorch._utils\n_rebuild_tensor_v2\n(' + storage + b'K\0K\2\x85K\1\x85\x89ccollections\nOrderedDict\n)RtR'
    return b'}' + text(name) + tensor + b's'

for file, names in ('models', ['w%d' % i for i in range(10000)]), ('copies', ['w'] * 10000):
    with zipfile.ZipFile(file + '.pt', 'w') as z:
        z.writestr('a/data.pkl', b'\x80\2](' + b''.join(map(model, names)) + b'e.')
        z.writestr('a/version', '3\n')
        z.writestr('a/data/0', bytes(8))
END
for f in models copies; do
    timeout 30 ckpt convert -q --no-fsync $f.pt $f.safetensors
    echo "status $?"
done
