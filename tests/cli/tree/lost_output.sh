# SPDX-License-Identifier: Apache-2.0
# A full disk and a reader that left end a command as they end others, although they also stop the library's work.
run=$FIXTURES/z1_bf16_w3_groups/ckpt
python3 - <<'END'
import json
import struct
for name in 'ab':
    head = json.dumps({f'{name}.layers.{i}.weight': {'dtype': 'U8', 'shape': [1], 'data_offsets': [i, i + 1]}
                       for i in range(9999)}).encode()
    open(name + '.safetensors', 'wb').write(struct.pack('<Q', len(head)) + head + bytes(9999))
END
ckpt tree "$run" >/dev/full
echo "status $?"
ckpt diff a.safetensors b.safetensors >/dev/full
echo "status $?"
mkfifo pipe gone
(exec >pipe; read -r _ <gone; ckpt tree "$run"; echo $? >status) &
exec 3<pipe
exec 3<&-
echo >gone
wait
cat status
