# SPDX-License-Identifier: Apache-2.0
# A run that trained an adapter: an adapter in, an adapter out, with the configuration beside it or the one that is named.
src=$FIXTURES/trainer_lora_z3
names() { ckpt ls "$1" | head -2; }
for options in "" --adapter-only; do
    ckpt convert -q "$src" out --to hf -f $options && ls out && ckpt diff --tol 2e-5 --ignore-dtype "$src/adapter_model.safetensors" out
done
cmp "$src/adapter_config.json" out/adapter_config.json && names out
echo "-- nothing beside it: what the message says leads there"
mkdir alone && cp -r "$src/global_step2" "$src/latest" alone
ckpt convert -q alone x --to hf || echo "status $?"
ckpt convert -q alone x --to hf --adapter-only || echo "status $?"
ckpt convert -q alone named --to hf --adapter-config "$src/adapter_config.json" && ckpt diff out named && ls named
echo "-- merged out of the shards"
cat >make.py <<'EOP'
import json, struct, sys
# a base in which the adapter's modules are
head, data = {}, b''
for i in 0, 1:
    for proj, rows in ('q_proj', 16), ('v_proj', 8):
        head['model.layers.%d.self_attn.%s.weight' % (i, proj)] = {'dtype': 'F32', 'shape': [rows, 16], 'data_offsets': [len(data), len(data) + rows * 64]}
        data += struct.pack('<%df' % (rows * 16), *[j / 100 for j in range(rows * 16)])
text = json.dumps(head).encode()
open('base.safetensors', 'wb').write(struct.pack('<Q', len(text)) + text + data)
EOP
python3 make.py
ckpt convert -q base.safetensors shards.safetensors --adapter "$src" && ckpt convert -q base.safetensors folder.safetensors --adapter out &&
    ckpt diff shards.safetensors folder.safetensors
ckpt diff -q base.safetensors shards.safetensors | wc -l
ckpt convert -q base.safetensors y.safetensors --adapter alone || echo "status $?"
ckpt convert -q base.safetensors y.safetensors --adapter alone --adapter-config "$src/adapter_config.json" && ckpt diff shards.safetensors y.safetensors
echo "-- a run with its base in it"
run=$FIXTURES/k_lora_z3/ckpt
ckpt convert -q "$run" both --to hf && ls both
ckpt convert -q "$run" z --to hf --strict || echo "status $?"
sed 's/"modules_to_save": null/"modules_to_save": ["lm_head"]/' "$src/adapter_config.json" >own.json
ckpt convert -q "$run" adapter --to hf --adapter-config own.json && ls adapter && names adapter
echo "-- of no adapter"
ckpt convert -q "$FIXTURES/hub_olmoe/hub" w --to hf --adapter-config own.json
