# SPDX-License-Identifier: Apache-2.0
# A diffusion LoRA merged into a pipeline or a component, in the names of three programs: as diffusers does, rounded at each step to the weight's dtype.
cat >tensors.py <<'END'
import json, struct
CODES = {"F32": "f", "F16": "e"}

def read(path):
    with open(path, "rb") as f:
        data = f.read()
    at = 8 + struct.unpack("<Q", data[:8])[0]
    found = {}
    for name, t in json.loads(data[8:at]).items():
        if name != "__metadata__":
            begin, end = t["data_offsets"]
            code = CODES[t["dtype"]]
            found[name] = t["dtype"], t["shape"], list(struct.unpack("<%d%s" % ((end - begin) // struct.calcsize(code), code), data[at + begin:at + end]))
    return found

def save(path, tensors, kind="F32"):
    header, data = {}, b""
    for name, (shape, numbers) in sorted(tensors.items()):
        raw = struct.pack("<%d%s" % (len(numbers), CODES[kind]), *numbers)
        header[name] = {"dtype": kind, "shape": shape, "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + data)

def rounded(kind, x):
    return struct.unpack("<" + CODES[kind], struct.pack("<" + CODES[kind], x))[0]
END
cat >make.py <<'END'
import sys
from tensors import save

def pair(out, name, inputs, outputs, rank, alpha, kernel=()):
    n = rank * inputs * (kernel[0] * kernel[1] if kernel else 1)
    out[name + ".lora_down.weight"] = [rank, inputs, *kernel], [(i % 13 - 6) / 7 for i in range(n)]
    out[name + ".lora_up.weight"] = [outputs, rank, *[1 for _ in kernel]], [(i % 11 - 4) / 9 for i in range(outputs * rank)]
    if alpha is not None:
        out[name + ".alpha"] = [], [alpha]

lora = {}
pair(lora, "lora_unet_down_blocks_0_resnets_0_conv1", 4, 4, 2, 1, (3, 3))
pair(lora, "lora_unet_up_blocks_0_resnets_1_conv_shortcut", 8, 4, 3, 2, (1, 1))
pair(lora, "lora_unet_mid_block_resnets_0_time_emb_proj", 16, 4, 5, None)
save("unet.safetensors", lora)
save("half.safetensors", lora, "F16")
clip = {}
pair(clip, "lora_te_text_model_encoder_layers_0_mlp_fc1", 4, 8, 2, 0.5)
save("clip.safetensors", clip)
save("both.safetensors", {**lora, **clip})
save("only_up.safetensors", {k: v for k, v in lora.items() if not k.endswith("conv1.lora_down.weight")})
other = {}
pair(other, "lora_unet_mid_block_attentions_0_proj_in", 4, 4, 2, 1, (1, 1))
save("other.safetensors", other)
wide = {}
pair(wide, "lora_unet_mid_block_resnets_0_time_emb_proj", 8, 4, 2, 1)
save("wide.safetensors", wide)
save("loha.safetensors", {"lora_unet_conv_in.hada_w1_a": ([2, 2], [1, 2, 3, 4])})
save("model.safetensors", {"text_model.encoder.layers.0.mlp.fc1.weight": ([8, 4], list(range(32))), "text_model.final_layer_norm.weight": ([4], [1, 2, 3, 4])})
END
cat >check.py <<'END'
"""check.py BASE LORA MERGED DTYPE WEIGHT: base + up down alpha / rank, with the factors, the product and the sum in the dtype."""
import sys
from tensors import read, rounded

base, lora, merged = (read(p) for p in sys.argv[1:4])
kind, weight = sys.argv[4], float(sys.argv[5])
left = {k: v for k, v in base.items()}
for name in sorted({k.split(".")[0] for k in lora}):
    down, up = (lora[name + end] for end in (".lora_down.weight", ".lora_up.weight"))
    rank, outputs = down[1][0], up[1][0]
    scale = (lora[name + ".alpha"][2][0] if name + ".alpha" in lora else rank) / rank * weight
    [at] = [k for k in base if k.endswith(".weight") and k[:-7].replace(".", "_") == name[len("lora_unet_"):]]
    inputs = len(down[2]) // rank
    want = []
    for o in range(outputs):
        for i in range(inputs):
            acc = 0.0
            for k in range(rank):
                acc = rounded("F32", rounded(kind, up[2][o * rank + k]) * rounded(kind, down[2][k * inputs + i]) + acc)
            delta = rounded(kind, rounded("F32", acc * rounded("F32", scale)))
            want.append(rounded(kind, rounded("F32", base[at][2][o * inputs + i] + delta)))
    print(at, merged[at][0], "as computed" if merged[at] == (kind, base[at][1], want) and want != base[at][2] else "differs")
    del left[at]
print("the rest is unchanged" if all(merged[k] == v for k, v in left.items()) and len(merged) == len(base) else "the rest differs")
END
python3 make.py && src=$FIXTURES/diffusers
echo "-- a component"
ckpt convert "$src" out --to hf --adapter unet.safetensors | sed 's/ in .*s)//' && python3 check.py "$src/diffusion_pytorch_model.safetensors" unet.safetensors out/diffusion_pytorch_model.safetensors F32 1
ckpt convert -q "$src" f16 --to hf --dtype f16
ckpt convert -q f16 out16 --to hf --adapter unet.safetensors:0.7 && python3 check.py f16/diffusion_pytorch_model.safetensors unet.safetensors out16/diffusion_pytorch_model.safetensors F16 0.7
ckpt convert -q f16 half --to hf --adapter half.safetensors && python3 check.py f16/diffusion_pytorch_model.safetensors half.safetensors half/diffusion_pytorch_model.safetensors F16 1
for names in diffusers comfyui; do
    ckpt convert -q unet.safetensors $names.safetensors --to safetensors --lora-names $names:sd && ckpt convert -q "$src" $names --to hf --adapter $names.safetensors && ckpt diff out $names
done
mkdir saved && mv diffusers.safetensors saved/pytorch_lora_weights.safetensors && ckpt convert -q "$src" folder --to hf --adapter saved && ckpt diff out folder
echo "-- one after another, as in two runs"
ckpt convert -q half twice --to hf --adapter unet.safetensors:-0.5 && ckpt convert -q f16 once --to hf --adapter half.safetensors --adapter unet.safetensors:-0.5 && ckpt diff once twice
echo "-- a pipeline"
mkdir -p pipe/text_encoder pipe/scheduler && cp -r "$src" pipe/unet && cp -r "$src" pipe/vae && cp model.safetensors pipe/text_encoder && echo '{}' >pipe/scheduler/scheduler_config.json
echo '{"architectures": ["CLIPTextModel"], "model_type": "clip_text_model"}' >pipe/text_encoder/config.json
echo '{"unet": ["diffusers", "UNet2DModel"], "vae": ["diffusers", "UNet2DModel"], "text_encoder": ["transformers", "CLIPTextModel"], "scheduler": ["diffusers", "DDIMScheduler"]}' >pipe/model_index.json
ckpt convert pipe whole --to hf --adapter both.safetensors | sed 's/ in .*s)//' && ckpt diff whole/unet out && ckpt diff pipe whole | tail -n 5 && ls whole
echo 'text_model.* *' >rules && ckpt convert -q pipe/text_encoder bare --to hf --rename rules
rm -r pipe/text_encoder && mv bare pipe/text_encoder && ckpt convert -q pipe flat --to hf --adapter both.safetensors && ckpt ls flat --include 'text_encoder/*' && ckpt diff whole/unet flat/unet
ckpt convert -q pipe one.safetensors --adapter clip.safetensors && ckpt diff one.safetensors flat --include 'text_encoder/*'
echo "-- refused"
try() { ckpt convert -q "$@" || echo "status $?"; }
try "$src" x --to hf --adapter both.safetensors
try "$src" x --to hf --adapter clip.safetensors
try "$src" x --to hf --adapter other.safetensors
try "$src" x --to hf --adapter wide.safetensors
try "$src" x --to hf --adapter only_up.safetensors
try "$src" x --to hf --adapter loha.safetensors
try pipe x --to hf --adapter other.safetensors
try pipe x --to hf --adapter missing.safetensors
ckpt convert -q "$src" eight --to hf --quantize fp8-block:1x1 && rm -r pipe/vae && mv eight pipe/vae && sed -i 's/"fp8"/"hqq"/' pipe/vae/config.json && try pipe x --to hf --adapter unet.safetensors
ls -d x 2>/dev/null
