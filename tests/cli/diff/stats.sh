# SPDX-License-Identifier: Apache-2.0
# --stats sums up groups of tensors; NaN and infinities are named, and left out of the distances.
F=$FIXTURES
ckpt convert -q --dtype q4_0 "$F"/gguf_llama_deep/hf q.gguf 2>/dev/null
ckpt diff --stats "$F"/gguf_llama_deep/hf q.gguf; echo "exit status $?"
ckpt diff --stats "$F"/gguf_llama_deep/hf "$F"/gguf_llama_deep/hf | tail -n 2
echo "-- tensors without counterpart, NaN and infinity, bytes"
python3 - <<'EOF'
import json
import struct

NAN, INF = float('nan'), float('inf')


def save(path, tensors):
    head, body = {}, b''
    for name, (dtype, data, n) in tensors.items():
        head[name] = {'dtype': dtype, 'shape': [n], 'data_offsets': [len(body), len(body) + len(data)]}
        body += data
    text = json.dumps(head).encode()
    with open(path, 'wb') as f:
        f.write(struct.pack('<Q', len(text)) + text + body)


def floats(*values):
    return 'F32', struct.pack('<%df' % len(values), *values), len(values)


save('a.safetensors', {'h.0.w': floats(1, NAN, 2), 'h.10.w': floats(0, INF, 3), 'zero': floats(0, 0), 'other.a': floats(1),
                       'big': ('F32', struct.pack('<f', 1) * 200000, 200000), 'bits': ('BOOL', b'\0\1\1', 3)})
save('b.safetensors', {'h.0.w': floats(1, NAN, 2), 'h.10.w': floats(NAN, INF, 4), 'zero': floats(0, 1), 'other.b': floats(1),
                       'big': ('F32', struct.pack('<f', 1) * 199999 + struct.pack('<f', 2), 200000), 'bits': ('BOOL', b'\0\1\0', 3)})
EOF
ckpt diff --stats a.safetensors b.safetensors; echo "exit status $?"
ckpt diff --stats --json a.safetensors b.safetensors | sed -n '/"groups"/,$p'
ckpt diff --stats --tol 1 a.safetensors b.safetensors | grep -e big -e zero
ckpt diff --stats -q a.safetensors b.safetensors
