# SPDX-License-Identifier: Apache-2.0
# Entries of param_groups that are no groups are refused; a group may be empty, and then nothing is trained.
python3 - <<'END'
import struct, zipfile

def text(s):
    return b'X' + struct.pack('<I', len(s)) + s.encode()

storage = b'(X\7\0\0\0storagectorch\nFloatStorage\nX\1\0\0\x000X\3\0\0\0cpuK\2tQ'
tensor = b'ctorch._utils\n_rebuild_tensor_v2\n(' + storage + b'K\0K\2\x85K\1\x85\x89ccollections\nOrderedDict\n)RtR'
model = b'}' + text('w') + tensor + b's'
for file, groups in ('garbage', b'K\1N'), ('empty', b'}' + text('params') + b']s'):
    optimizer = b'}(' + text('state') + b'}' + text('param_groups') + b'](' + groups + b'eu'
    with zipfile.ZipFile(file + '.pt', 'w') as z:
        z.writestr('a/data.pkl', b'\x80\2}(' + text('model') + model + text('optimizer') + optimizer + b'u.')
        z.writestr('a/version', '3\n')
        z.writestr('a/data/0', bytes(8))
END
for f in garbage empty; do
    ckpt reshard -q --no-fsync --to zero --stage 2 --world 2 $f.pt $f
    echo "status $?"
done
