# SPDX-License-Identifier: Apache-2.0
# averaged weights beside the weights, in one dict, are left out by name; --include selects them
python3 -c '
import json, struct
names = ["w", "v", "ema.module.w", "ema.module.v"]
head = {n: {"dtype": "F32", "shape": [2], "data_offsets": [8 * i, 8 * i + 8]}
        for i, n in enumerate(names)}
text = json.dumps(head).encode()
open("a.safetensors", "wb").write(
    struct.pack("<Q", len(text)) + text + struct.pack("<8f", *range(8)))
'
ckpt convert -q a.safetensors b.safetensors
ckpt ls b.safetensors
ckpt convert -q --include 'ema.*' a.safetensors c.safetensors
ckpt ls c.safetensors
# nor do they become parameters of a new run
ckpt reshard -q -w 1 -s 1 --order stored a.safetensors run
ckpt ls run
