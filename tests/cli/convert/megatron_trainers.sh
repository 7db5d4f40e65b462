# SPDX-License-Identifier: Apache-2.0
# Megatron-Bridge, NeMo 2 and Megatron-FSDP: their folders, and their configuration instead of Megatron's arguments.
B=$FIXTURES/mcore_bridge_dp2/ckpt N=$FIXTURES/mcore_nemo2_dp2/ckpt D=$FIXTURES/mcore_fsdp_w2/ckpt
for at in "$B" "$N" "$D"; do
    ckpt info "$at" | grep -e '^layout' -e '^tag ' -e '^iteration' -e '^note'
    ckpt convert -q "$at" "hf$((n = ${n:-0} + 1))" --to hf && ckpt doctor "$at"
done
cat hf1/config.json
cmp hf1/model.safetensors hf2/model.safetensors && cmp hf1/config.json hf2/config.json && echo the same
# one run, so that masters and moments are equal too; Megatron-FSDP saves no 16-bit weights
ckpt diff --with-optimizer "$B" "$N" 2>/dev/null && ckpt diff --with-optimizer "$B" "$D" 2>/dev/null
# from each to torch_dist and ZeRO, and back
for at in "$B" "$N" "$D"; do
    ckpt reshard -q "$at" zero --to zero --world 3 --force && ckpt reshard -q zero core --to megatron --force &&
        ckpt diff -q --with-optimizer "$at" core && echo and back
done
# the configuration needs no common.pt
mkdir lacks && cp -r "$N"/weights "$N"/context lacks && chmod -R u+w lacks && rm lacks/weights/common.pt
ckpt convert -q lacks hf4 --to hf && cmp hf2/config.json hf4/config.json && rm -r lacks
# settings that no layout map carries are named
cp -r "$B" bridge && chmod -R u+w bridge
sed -i -e 's/rotary_percent: 1.0/rotary_percent: 0.5/' -e 's/^peft: null/peft: {_target_: LoRA, dim: 8}/' bridge/iter_0000003/run_config.yaml
ckpt convert -q bridge out --to hf
printf 'model: [1\n' >bridge/iter_0000003/run_config.yaml
ckpt ls bridge | tail -1
# a run of NeMo 2 has no tracker file
mkdir -p run/checkpoints && cp -r "$N" 'run/checkpoints/llama--step=3' && cp -r "$N" 'run/checkpoints/llama--step=3-last'
ckpt ls run/checkpoints || echo "status $?"
mv 'run/checkpoints/llama--step=3-last' 'run/checkpoints/llama--step=4-last' && ckpt info run/checkpoints | grep '^tag '
ckpt ls --tag 'llama--step=3' run/checkpoints | tail -1
ckpt doctor run/checkpoints
# a half of a gated layer, and a file of data, that are missing
cp -r "$D" fsdp && chmod -R u+w fsdp
sed -i 's/linear_fc1.weight_v/linear_fc1.weight_x/g' fsdp/iter_0000003/.metadata
ckpt ls fsdp || echo "status $?"
cp "$D"/iter_0000003/.metadata fsdp/iter_0000003 && rm fsdp/iter_0000003/__1_0.distcp
ckpt ls fsdp || echo "status $?"
ckpt doctor fsdp || echo "status $?"
# a parameter in the groups without moments; names of Megatron beyond the first bytes; masters of another shape
cp "$D"/iter_0000003/* fsdp/iter_0000003 && sed -i 's/optimizer.state.module.module.module.decoder.final/optimizar.state.module.module.module.decoder.final/g' \
    fsdp/iter_0000003/.metadata
ckpt reshard -q fsdp no --to zero --world 2 || echo "status $?"
"${PYTHON:-python3}" - "$D"/iter_0000003/.metadata fsdp/iter_0000003/.metadata <<'EOF'
import struct, sys
text, n = open(sys.argv[1], 'rb').read(), 3 << 20
open(sys.argv[2], 'wb').write(text[:2] + b'B' + struct.pack('<I', n) + b'x' * n + b'0' + text[2:])
EOF
ckpt info fsdp/iter_0000003 | grep '^layout' && ckpt diff -q fsdp "$D" && echo equal
"${PYTHON:-python3}" - "$D"/iter_0000003/.metadata fsdp/iter_0000003/.metadata <<'EOF'
import sys
text = open(sys.argv[1], 'rb').read().replace(b'exp_avg_sq', b'fp32_param')
names = [b'optimizer.state.module.module.module.decoder.layers.0.self_attention.linear_%s.weight.fp32_param' % x for x in (b'qkv', b'proj')]
a, b = (b'\x8c' + bytes([len(n)]) + n for n in names)
assert text.count(a) and text.count(a) == text.count(b)
open(sys.argv[2], 'wb').write(text.replace(a, b'@@').replace(b, a).replace(b'@@', b))
EOF
ckpt reshard -q fsdp no --to zero --world 2 || echo "status $?"
