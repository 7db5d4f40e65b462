# SPDX-License-Identifier: Apache-2.0
# Each part of a model has its own layers: those of one do not stand for those of another.
python3 - <<'END'
import json, os, struct


def model(name, config, names):
    os.mkdir(name)
    header = json.dumps({n: {"dtype": "F32", "shape": [1], "data_offsets": [4 * i, 4 * i + 4]} for i, n in enumerate(names)}).encode()
    with open(name + "/model.safetensors", "wb") as f:
        f.write(struct.pack("<Q", len(header)) + header + bytes(4 * len(names)))
    with open(name + "/config.json", "w") as f:
        json.dump(config, f)


def layers(prefix, n):
    return [f"{prefix}.{i}.fc1.weight" for i in range(n)]


bart = {"model_type": "bart", "encoder_layers": 3, "decoder_layers": 3, "num_hidden_layers": 3}
model("whole", bart, layers("model.encoder.layers", 3) + layers("model.decoder.layers", 3))
model("encoder", bart, layers("model.encoder.layers", 2) + layers("model.decoder.layers", 3))
model("decoder", bart, layers("model.encoder.layers", 3) + layers("model.decoder.layers", 1))
t5 = {"model_type": "t5", "num_layers": 2, "num_decoder_layers": 4}
model("t5", t5, layers("encoder.block", 2) + layers("decoder.block", 4))
model("t5_encoder", t5, layers("encoder.block", 2))
model("t5_decoder", t5, layers("encoder.block", 2) + layers("decoder.block", 3))
vlm = {"model_type": "llava", "text_config": {"num_hidden_layers": 2}, "vision_config": {"num_hidden_layers": 4}}
model("vlm", vlm, layers("language_model.model.layers", 2) + layers("vision_tower.encoder.layers", 4))
model("vlm_text", vlm, layers("language_model.model.layers", 1) + layers("vision_tower.encoder.layers", 4))
model("vlm_vision", vlm, layers("language_model.model.layers", 2) + layers("vision_tower.encoder.layers", 3))
stages = {"model_type": "groupvit", "text_config": {"num_hidden_layers": 2}, "vision_config": {"num_hidden_layers": 12, "depths": [6, 3, 3]}}
model("stages", stages, layers("text_model.encoder.layers", 2) + layers("vision_model.encoder.stages", 3))
model("detector", {"model_type": "mask2former", "backbone_config": {}, "encoder_layers": 6, "decoder_layers": 10, "num_hidden_layers": 10},
      layers("model.transformer.decoder.layers", 9))
END
for d in whole encoder decoder t5 t5_encoder t5_decoder vlm vlm_text vlm_vision detector; do
    echo "$d"
    ckpt verify --quiet $d
    echo "status $?"
done
ckpt verify --quiet --strict stages
echo "strict: $?"
ckpt verify --quiet --strict vlm_vision
echo "strict: $?"
