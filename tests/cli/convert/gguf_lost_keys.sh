# SPDX-License-Identifier: Apache-2.0
# Keys of a GGUF file that change what the model computes: config.json expresses them, or nothing is written.
cat > with.py <<'PY'
import struct, sys

KINDS = {'u32': (4, '<I'), 'f32': (6, '<f'), 'bool': (7, '<?')}


def text(s):
    return struct.pack('<Q', len(s)) + s.encode()


def pair(arg):
    name, kind, value = arg.split(':')
    if kind == 'string':
        return text(name) + struct.pack('<I', 8) + text(value)
    if kind == 'u32s':
        items = [int(x) for x in value.split(',')]
        return text(name) + struct.pack('<IIQ', 9, 4, len(items)) + struct.pack('<%dI' % len(items), *items)
    number, form = KINDS[kind]
    value = value == 'true' if kind == 'bool' else float(value) if kind == 'f32' else int(value)
    return text(name) + struct.pack('<I', number) + struct.pack(form, value)


# the new keys come first; one more text keeps the data aligned
with open(sys.argv[1], 'rb') as f:
    data = f.read()
more = b''.join(pair(a) for a in sys.argv[3:])
n_tensors, n_keys = struct.unpack('<QQ', data[8:24])
pad = text('test.pad') + struct.pack('<I', 8)
pad += text(' ' * (-(len(more) + len(pad) + 8) % 32))
head = data[:16] + struct.pack('<Q', n_keys + len(sys.argv[3:]) + 1)
with open(sys.argv[2], 'wb') as f:
    f.write(head + more + pad + data[24:])
PY
llama=$FIXTURES/gguf_llama_deep/Q4_0.gguf
try() { # FILE KEY:TYPE:VALUE ...: convert the file with more keys
    python3 with.py "$@" && rm -rf out && ckpt convert -q "$2" out --to hf --dtype f32 2>&1 | grep -v tokenizer || echo written
}
one() { try "$llama" x.gguf "$@"; }
one llama.logit_scale:f32:0.25
one llama.final_logit_softcapping:f32:30 llama.attn_logit_softcapping:f32:50
one llama.rope.freq_base_swa:f32:10000
one llama.attention.causal:bool:false
try "$FIXTURES"/gguf_mixtral/Q5_0.gguf x.gguf llama.attention.value_length:u32:16
try "$FIXTURES"/gguf_bert/F16.gguf x.gguf bert.attention.head_count_kv:u32s:4,2
one llama.rope.scaling.type:string:longrope llama.rope.scaling.factor:f32:4
echo '# NaN is no value'
one llama.logit_scale:f32:nan
one llama.attn_logit_softcapping:f32:nan
echo '# a value that is the same as none, or is of other writers'
one llama.logit_scale:f32:1 llama.embedding_scale:f32:0 llama.attention.causal:bool:true \
    llama.tensor_data_layout:string:Meta llama.rope.scaling.finetuned:bool:true llama.rope.scaling.type:string:none
echo '# expressed'
one llama.attention.sliding_window:u32:32 && grep -E 'sliding|model_type|ForCausal' out/config.json
one llama.rope.scale_linear:f32:4 && grep -A3 rope_scaling out/config.json
one llama.rope.scaling.type:string:yarn llama.rope.scaling.factor:f32:4 llama.rope.scaling.yarn_beta_fast:f32:16 &&
    grep -A4 rope_scaling out/config.json
echo '# another architecture, and the configuration of the caller'
try "$FIXTURES"/gguf_bert/F16.gguf y.gguf bert.attention.max_alibi_bias:f32:8 bert.pooling_type:u32:1
cp "$FIXTURES"/gguf_llama_deep/hf/config.json own.json
python3 with.py "$llama" x.gguf llama.logit_scale:f32:0.25
rm -rf out && ckpt convert -q x.gguf out --to hf --dtype f32 --config own.json && echo written
echo '# weights alone: a warning'
ckpt convert -q x.gguf y.safetensors --map gguf:hf --dtype f32 && echo written
ckpt convert -q --strict x.gguf z.safetensors --map gguf:hf --dtype f32; echo $?
