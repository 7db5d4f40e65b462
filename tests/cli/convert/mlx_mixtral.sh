# SPDX-License-Identifier: Apache-2.0
# MLX packs the experts of Mixtral under names of its own: the folder is read with a warning, and layout maps refuse the names.
cat >pack.map <<'END'
model.layers.{i}.block_sparse_moe.experts.{e}.w1.weight "out in" = model.layers.{i}.block_sparse_moe.switch_mlp.gate_proj.weight "e out in"
model.layers.{i}.block_sparse_moe.experts.{e}.w2.weight "out in" = model.layers.{i}.block_sparse_moe.switch_mlp.down_proj.weight "e out in"
model.layers.{i}.block_sparse_moe.experts.{e}.w3.weight "out in" = model.layers.{i}.block_sparse_moe.switch_mlp.up_proj.weight "e out in"
{rest...} = {rest...}
END
mkdir mlx && cp "$FIXTURES/map_mcore_mixtral/hf/config.json" mlx
ckpt convert -q "$FIXTURES/map_mcore_mixtral/hf" mlx/model.safetensors --map ./pack.map
python3 - <<'END'
import json, struct

data = open('mlx/model.safetensors', 'rb').read()
n = struct.unpack('<Q', data[:8])[0]
head = json.loads(data[8:8 + n])
head['__metadata__'] = {'format': 'mlx'}
text = json.dumps(head).encode()
open('mlx/model.safetensors', 'wb').write(struct.pack('<Q', len(text)) + text + data[8 + n:])
END
for to in safetensors gguf; do
    ckpt convert -q mlx out.$to --to $to
    echo "status $?"
done
ckpt convert -q out.safetensors back.safetensors --map ./pack.map --backwards && ckpt diff -q back.safetensors "$FIXTURES/map_mcore_mixtral/hf" && echo equal
