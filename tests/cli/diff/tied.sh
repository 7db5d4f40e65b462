# SPDX-License-Identifier: Apache-2.0
# A state dict has the names of tied heads, a folder has the tables alone: equal if the head repeats its table.
F=$FIXTURES
ckpt convert -q "$F"/map_mcore_gpt2/hf --to dcp dcp && ckpt diff dcp "$F"/map_mcore_gpt2/hf && ckpt diff -q "$F"/map_mcore_gpt2/hf dcp
ckpt diff --json dcp "$F"/map_mcore_gpt2/hf | sed -n '/tied/,/]/p'
ckpt convert -q "$F"/hf_bert_sharded --to universal uni && ckpt diff --ignore-dtype "$F"/hf_bert_sharded uni; echo "exit status $?"
echo "-- names as they are"
ckpt diff --map none dcp "$F"/map_mcore_gpt2/hf; echo "exit status $?"
echo "-- one element of the head, one of the table"
ckpt convert -q dcp plain.safetensors
python3 - <<'EOF'
import json
import struct

def copy(to, name):
    with open('plain.safetensors', 'rb') as f:
        data = bytearray(f.read())
    n = struct.unpack('<Q', data[:8])[0]
    a, b = json.loads(data[8:8 + n])[name]['data_offsets']
    data[8 + n + (a + b) // 8 * 4 + 1] ^= 1
    with open(to, 'wb') as f:
        f.write(data)


copy('head.safetensors', 'lm_head.weight')
copy('table.safetensors', 'transformer.wte.weight')
EOF
ckpt diff plain.safetensors "$F"/map_mcore_gpt2/hf; echo "exit status $?"
ckpt diff head.safetensors "$F"/map_mcore_gpt2/hf; echo "exit status $?"
ckpt diff table.safetensors "$F"/map_mcore_gpt2/hf; echo "exit status $?"
