# SPDX-License-Identifier: Apache-2.0
# A weight of 1e9 makes the half-precision scale of its block infinite: the block's 32 values would be lost.
ckpt convert -q "$FIXTURES/gguf_llama_deep/hf" big --to hf --dtype bf16
python3 - <<'END'
import json, struct
with open('big/model.safetensors', 'r+b') as f:
    n, = struct.unpack('<Q', f.read(8))
    at = json.loads(f.read(n))['model.layers.0.mlp.gate_proj.weight']['data_offsets'][0]
    f.seek(8 + n + at)
    f.write(struct.pack('<f', 1e9)[2:])   # BF16
END
for dtype in q8_0 q4_k_m; do
    ckpt convert -q big out.gguf --dtype $dtype 2>&1 | tail -n 1
    test -e out.gguf || echo "nothing was written"
done
ckpt convert big out.gguf --dtype q8_0 --allow-overflow 2>/dev/null
ckpt verify out.gguf
