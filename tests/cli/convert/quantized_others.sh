# SPDX-License-Identifier: Apache-2.0
# Quantizations that are not read are refused by name, and by their tensors where config.json says nothing of them.
cat >kinds.py <<'EOP'
import json, os, struct

N = {'I8': 1, 'U8': 1, 'I16': 2, 'F16': 2, 'I32': 4, 'F8_E4M3': 1, 'F8_E5M2': 1, 'I64': 8}
KINDS = {
    'exl2': {'q_weight': 'I32', 'q_scale': 'I32', 'q_scale_max': 'F16', 'q_groups': 'I16'}, 'exl3': {'trellis': 'I16', 'suh': 'F16', 'svh': 'F16'},
    'hqq': {'W_q': 'U8', 'scale': 'F16', 'zero': 'F16'}, 'aqlm': {'codes': 'I16', 'codebooks': 'F16', 'scales': 'F16'},
    'vptq': {'indices': 'I16', 'centroids.weight': 'F16'}, 'quanto': {'weight._data': 'I8', 'weight._scale': 'F16'},
    'eetq': {'weight': 'I8', 'weight_scales': 'F16'}, 'higgs': {'weight': 'I16', 'scales': 'F16', 'tables2': 'F16'},
    'spqr': {'dense_weights': 'I64', 'row_offsets': 'I32'}, 'bitnet': {'weight': 'U8', 'weight_scale': 'F16'},
    'fouroversix': {'quantized_weight_values': 'U8', 'quantized_weight_scale_factors': 'F8_E4M3'},
    'torchao': {'_weight_qdata': 'I8', '_weight_scale': 'F16'},
    'deepseek': {'weight': 'F8_E4M3', 'scale': 'F16'}, 'comfyui': {'weight': 'F8_E5M2', 'scale_weight': 'F16'},
    'int8': {'weight': 'I8', 'scale': 'F16'}, 'int8_scales': {'weight': 'I8', 'scales': 'F16'},
    'marlin': {'weight_packed': 'I32', 'scale_packed': 'F16', 'meta': 'I16'},
}
# numbers that are no weights, except the last but one, whose scales ckpt does not know
PLAIN = {'no_codes': {'codes': 'I64', 'codebooks': 'F16'}, 'no_indices': {'indices': 'I64', 'centroids.weight': 'F16'}, 'no_weight': {'weight': 'I32', 'weight_scales': 'F16'},
         'one_row': {'codes': 'I16', 'codebooks': 'F16', 'index': 'I32', 'index_scale': 'F16'}}
for name, parts in {**KINDS, **PLAIN}.items():
    for said in [True, False][name in PLAIN:]:
        folder = name + '_said' * said
        header, at = {'__metadata__': {'format': 'pt'}}, 0
        for key, dtype in dict({'a.' + k: d for k, d in parts.items()}, **{'b.weight': 'F16'}).items():
            header[key] = {'dtype': dtype, 'shape': [8] if name == 'one_row' else [4, 2], 'data_offsets': [at, at + 8 * N[dtype]]}
            at += 8 * N[dtype]
        text = json.dumps(header).encode()
        text += b' ' * (-len(text) % 8)
        os.mkdir(folder)
        with open(folder + '/model.safetensors', 'wb') as f:
            f.write(struct.pack('<Q', len(text)) + text + bytes(at))
        config = {'quantization_config': {'quant_method': name}} if said else {}
        json.dump(dict(config, dtype='float16'), open(folder + '/config.json', 'w'))
    if name in KINDS:
        print(name)
EOP
for kind in $(python3 kinds.py); do
    for from in ${kind}_said $kind; do
        ckpt convert -q $from out --to hf --dtype bf16 2>&1 | sed 's/ (ckpt formats.*//; s/: asking for.*//'
        ls -d out 2>&1
        ckpt convert -q $from out --to hf && echo copied
        rm -rf out
    done
done
for kind in no_codes no_indices no_weight one_row; do
    ckpt convert -q $kind $kind.out --to hf --dtype bf16 && echo "$kind: copied" && ckpt ls $kind.out
done
# torchao in config.json, but floats in safetensors, which cannot have torchao's classes
mkdir floats && cp "$FIXTURES/map_meta_s1/hf/model.safetensors" floats
sed 's/"model_type"/"quantization_config": {"quant_method": "torchao"}, &/' "$FIXTURES/map_meta_s1/hf/config.json" >floats/config.json
ckpt convert -q floats floats.out --to hf --dtype bf16
grep quantization floats.out/config.json || echo 'no quantization'
