# SPDX-License-Identifier: Apache-2.0
# The embedding of a model of any type has the sizes of its config.json, or a warning says so; and models whose layers or experts
# are counted in other ways are whole.
python3 - <<'END'
import json, os, struct


def model(name, config, tensors):
    os.mkdir(name)
    head, n = {}, 0
    for key, shape in tensors.items():
        size = 4
        for d in shape:
            size *= d
        head[key] = {"dtype": "F32", "shape": shape, "data_offsets": [n, n + size]}
        n += size
    head = json.dumps(head).encode()
    with open(name + "/model.safetensors", "wb") as f:
        f.write(struct.pack("<Q", len(head)) + head + bytes(n))
    with open(name + "/config.json", "w") as f:
        json.dump(config, f)


def falcon(**more):
    return dict({"model_type": "falcon", "vocab_size": 10, "hidden_size": 6, "num_hidden_layers": 1}, **more)


one = {"transformer.h.0.mlp.weight": [6, 6]}
table = "transformer.word_embeddings.weight"
model("whole", falcon(), {table: [10, 6], **one})
model("rows", falcon(), {table: [7, 6], **one})
model("columns", falcon(), {table: [10, 4], **one})
model("more_rows", falcon(), {table: [11, 6], **one})
model("narrow", falcon(embedding_size=4), {table: [10, 4], **one})
model("two_tables", falcon(), {table: [10, 4], "audio.embed_tokens.weight": [7, 6], **one})
hrm = {"model_type": "hrm_text", "num_hidden_layers": 16, "num_layers_per_stack": 2}
model("again", hrm, {"model.%s_module.layers.%d.mlp.weight" % (m, i): [2] for m in "HL" for i in range(2)})
model("again_short", dict(hrm, num_layers_per_stack=3), {"model.%s_module.layers.%d.mlp.weight" % (m, i): [2] for m in "HL" for i in range(2)})
flash = {"model_type": "longcat_flash", "num_layers": 1, "n_routed_experts": 2, "zero_expert_num": 2}
expert = "model.layers.0.mlp.experts.%d.%s_proj.weight"
model("idle", flash, {expert % (e, k): [2] for e in range(4) for k in ("gate", "down") if e < 2 or k == "gate"})
model("idle_short", flash, {expert % (e, k): [2] for e in range(4) for k in ("gate", "down") if e < 1 or k == "gate"})
END
for d in whole rows columns more_rows narrow two_tables again again_short idle idle_short; do
    echo "$d"
    ckpt verify $d > said 2>&1
    echo "status $?"
    grep -h '^error\|^ckpt: \|^warning' said
done
ckpt verify --quiet --strict rows
