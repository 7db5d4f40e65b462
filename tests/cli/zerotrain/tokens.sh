# SPDX-License-Identifier: Apache-2.0
# Token files: a width that nobody says and the bytes speak against, headers, tokens beyond the vocabulary.
. "$FIXTURES"/../cli/zerotrain_help.inc
python3 - <<'EOP'
import json
import struct
json.dump({'architectures': ['GPT2LMHeadModel'], 'model_type': 'gpt2', 'vocab_size': 97, 'n_embd': 8, 'n_head': 2, 'n_layer': 1,
           'n_positions': 8, 'activation_function': 'gelu_new', 'layer_norm_epsilon': 1e-5, 'initializer_range': 0.02,
           'attn_pdrop': 0.0, 'embd_pdrop': 0.0, 'resid_pdrop': 0.0}, open('config.json', 'w'))
json.dump({**json.load(open('config.json')), 'vocab_size': 70000}, open('large.json', 'w'))
tokens = [(i * 31 + 7) % 97 for i in range(640)]
def write(name, kind, values=tokens, before=b''):
    with open(name, 'wb') as f:
        f.write(before + struct.pack('<%d%s' % (len(values), kind), *values))
for kind, width in ('H', 16), ('I', 32), ('Q', 64):
    write('t%d.bin' % width, kind)
write('beyond.bin', 'H', tokens[:600] + [97] + tokens[601:])
write('negative.bin', 'i', [-1] + tokens)
write('llm.bin', 'H', before=struct.pack('<256i', 20240520, 1, len(tokens), *[0] * 253))
write('named.bin', 'H', before=b'\x93NUMPY\x01\x00')
write('mega.bin', 'I')
open('mega.idx', 'wb').write(b'MMIDIDX\x00\x00' + struct.pack('<QB', 1, 4))
write('floats.bin', 'I')
open('floats.idx', 'wb').write(b'MMIDIDX\x00\x00' + struct.pack('<QB', 1, 7))
write('zero.bin', 'H', [0] * 640)
ids = struct.pack('<640q', *tokens[:640])
bad = struct.pack('<640q', *tokens[:639], 97)
for name, data in ('good', ids), ('bad', bad):
    head = json.dumps({'input_ids': {'dtype': 'I64', 'shape': [80, 8], 'data_offsets': [0, len(data)]}}).encode()
    open(name + '.safetensors', 'wb').write(struct.pack('<Q', len(head)) + head + data)
EOP
go() {
    zerotrain --deepspeed_config ds.json --model config.json --threads 1 --quiet --max-steps 1 --data "$@"
    echo "$*: exit status $?"
}
go t16.bin
go t32.bin
go t32.bin --token-dtype uint32
go t64.bin
go t64.bin --token-dtype uint32
go t16.bin --token-dtype uint32
go t16.bin --model large.json
go t32.bin --model large.json
go t64.bin --model large.json
go beyond.bin
go negative.bin --token-dtype uint32
go llm.bin
go named.bin
go mega.bin
go mega.bin --token-dtype uint16
go floats.bin
go zero.bin
go good.safetensors
go bad.safetensors
tail -c +1025 llm.bin >tail.bin
go tail.bin
mpirun -q -n 2 zerotrain --deepspeed_config ds.json --model config.json --threads 1 --quiet --max-steps 1 --data beyond.bin --save run
echo "exit status $?"
ls
