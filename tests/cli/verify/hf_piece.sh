# SPDX-License-Identifier: Apache-2.0
# A shard of a split model, or a rank's slice, under the name of a whole model's file: config.json tells; a file that is named
# itself is read as it is.
python3 - <<'END'
import json, os, shutil, struct
top = os.environ["FIXTURES"] + "/map_meta_s1/hf/"
raw = open(top + "model.safetensors", "rb").read()
n = struct.unpack("<Q", raw[:8])[0]
head, data = json.loads(raw[8:8 + n]), raw[8 + n:]

def write(folder, keep, cut=()):
    out, body = {}, b""
    for name, t in head.items():
        if name == "__metadata__" or not keep(name):
            continue
        a, b = t["data_offsets"]
        shape = list(t["shape"])
        size = (b - a) // (shape[0] if shape else 1)
        if name in cut:
            shape[0] //= cut[name]
            b = a + size * shape[0]
        out[name] = dict(t, shape=shape, data_offsets=[len(body), len(body) + b - a])
        body += data[a:b]
    text = json.dumps(out).encode()
    os.mkdir(folder)
    open(folder + "/model.safetensors", "wb").write(struct.pack("<Q", len(text)) + text + body)
    shutil.copy(top + "config.json", folder)

write("whole", lambda name: True)
write("piece", lambda name: ".layers.1." not in name)
write("slice", lambda name: True, {"model.embed_tokens.weight": 5})
END
ckpt verify -q whole
echo "whole: $?"
for f in piece slice; do
    ckpt verify $f
    echo "verify $f: $?"
    ckpt convert -q --to hf $f out
    echo "convert $f: $?"
    ckpt verify -q $f/model.safetensors
    echo "its file: $?"
done
