# SPDX-License-Identifier: Apache-2.0
# LoRA of diffusion models in the names of kohya, diffusers and ComfyUI: through all three and back, without a changed byte.
cat >make.py <<'END'
import json, struct, sys

def save(path, tensors, metadata=None, dtype="F32"):
    """tensors: name -> (shape, numbers); small integers, which each of these dtypes holds"""
    codes = {"F32": "f", "F16": "e", "F64": "d"}
    header, data = {"__metadata__": metadata} if metadata else {}, b""
    for name, (shape, numbers) in sorted(tensors.items()):
        kind = "F64" if name.endswith(".alpha") and dtype == "F16" else dtype
        raw = struct.pack("<%d%s" % (len(numbers), codes[kind]), *numbers)
        header[name] = {"dtype": kind, "shape": shape, "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + data)

def pair(out, name, inputs, outputs, rank, alpha=None, kernel=(), diagonal=0):
    down, up = [rank, inputs, *kernel], [outputs, rank, *[1 for _ in kernel]]
    n = rank * inputs * (kernel[0] * kernel[1] if kernel else 1)
    out[name + ".lora_down.weight"] = down, [i % 13 + 1 for i in range(n)]
    own = rank // diagonal if diagonal else rank
    out[name + ".lora_up.weight"] = up, [(i + 1) % 11 + 1 if not diagonal or i // rank // inputs == i % rank // own else 0 for i in range(outputs * rank)]
    if alpha is not None:
        out[name + ".alpha"] = [], [alpha]

sd = {}
for level in range(3):
    pair(sd, "lora_unet_down_blocks_%d_attentions_1_transformer_blocks_0_attn2_to_out_0" % level, 4, 4, 2, 1)
pair(sd, "lora_unet_up_blocks_0_upsamplers_0_conv", 3, 3, 1, 1, (3, 3))
pair(sd, "lora_unet_mid_block_attentions_0_proj_in", 4, 4, 3, 6, (1, 1))
pair(sd, "lora_te_text_model_encoder_layers_11_mlp_fc1", 4, 8, 2, 0.5)
save("sd", sd, {"ss_network_dim": "2", "sshs_legacy_hash": "00"}, "F16")
sdxl = {}
for name in "input_blocks_3_0_op", "input_blocks_4_1_transformer_blocks_1_ff_net_0_proj", "output_blocks_2_2_conv", "label_emb_0_2", "middle_block_2_in_layers_2":
    pair(sdxl, "lora_unet_" + name, 4, 4, 2, 2, (1, 1))
pair(sdxl, "lora_te1_text_model_encoder_layers_0_self_attn_q_proj", 4, 4, 2, 3)
pair(sdxl, "lora_te2_text_model_encoder_layers_31_mlp_fc2", 4, 4, 2, 3)
pair(sdxl, "lora_te2_text_projection", 4, 4, 2, 2)
save("sdxl", sdxl)
flux = {}
pair(flux, "lora_unet_double_blocks_0_img_attn_qkv", 4, 12, 2, 3)
pair(flux, "lora_unet_double_blocks_18_txt_attn_qkv", 4, 12, 6, 3, diagonal=3)
pair(flux, "lora_unet_single_blocks_37_linear1", 4, 28, 4, 8)
pair(flux, "lora_unet_single_blocks_0_linear2", 20, 4, 1, 1)
pair(flux, "lora_unet_final_layer_adaLN_modulation_1", 4, 8, 2, 2)
pair(flux, "lora_te1_text_model_encoder_layers_0_mlp_fc1", 4, 4, 2, 3)
save("flux", flux)
t5 = dict(flux)
pair(t5, "lora_te3_encoder_block_0_layer_0_SelfAttention_q", 4, 4, 2, 3)
save("t5", t5)
part = {}
for p, name in enumerate(("attn.to_q", "attn.to_v")):
    for end, shape in ("A", [2, 4]), ("B", [4, 2]):
        part["transformer.single_transformer_blocks.0.%s.lora_%s.weight" % (name, end)] = shape, list(range(p, p + 8))
save("part", part)
uneven = dict(part)
save("uneven", uneven, {"lora_adapter_metadata": json.dumps({"transformer.r": 2, "transformer.lora_alpha": 2, "transformer.alpha_pattern": {"^single_transformer_blocks.0.attn.to_v": 1}})})
save("ranks", part, {"lora_adapter_metadata": json.dumps({"transformer.r": 3})})
save("dora", part, {"lora_adapter_metadata": json.dumps({"transformer.r": 2, "transformer.use_dora": True})})
one = "transformer.single_transformer_blocks.0.attn.to_q"
meta = {"r_missing": {"transformer.lora_alpha": 1}, "r_text": {"transformer.r": "2", "transformer.lora_alpha": 1}, "list": [],
        "alpha_text": {"transformer.r": 2, "transformer.lora_alpha": "16"}, "pattern_list": {"transformer.r": 2, "transformer.alpha_pattern": [1]},
        "slora_number": {"transformer.r": 2, "transformer.use_rslora": 1}, "bare": {"r": 2, "lora_alpha": 1}}
for name, said in meta.items():
    save(name, part, {"lora_adapter_metadata": json.dumps(said)})
for name, alpha in ("disagrees", 1), ("agrees", 4):
    save(name, {**part, one + ".alpha": ([], [alpha])}, {"lora_adapter_metadata": json.dumps({"transformer.r": 2, "transformer.lora_alpha": 4})})
for name, alpha in ("huge", 1e6), ("tiny", 1e-9), ("odd", 2049), ("even", 2050):
    save(name, part, {"lora_adapter_metadata": json.dumps({"transformer.r": 2, "transformer.lora_alpha": alpha})}, "F16")
both = {}
pair(both, "lora_unet_input_blocks_4_1_proj_in", 4, 4, 2, 2)
save("both", both)

def odd(path, change, of=sd):
    tensors = dict(of)
    change(tensors)
    save(path, tensors)

mid = "lora_unet_mid_block_attentions_0_proj_in"
odd("unknown", lambda t: pair(t, "lora_unet_down_blocks_3_attentions_0_proj_in", 4, 4, 2, 1))
odd("loha", lambda t: t.update({mid + ".hada_w1_a": ([1], [1])}))
odd("end", lambda t: t.update({mid + ".lora_side.weight": ([1], [1])}))
odd("other", lambda t: t.update({"model.weight": ([1], [1])}))
odd("mixed", lambda t: pair(t, "diffusion_model.middle_block.1.proj_out", 4, 4, 2, 1))
odd("twice", lambda t: pair(t, "lora_unet_middle_block_1_proj_in", 4, 4, 2, 1))
odd("noup", lambda t: t.pop(mid + ".lora_up.weight"))
odd("rank", lambda t: t.update({mid + ".lora_up.weight": ([4, 2, 1, 1], [1] * 8)}))
odd("alpha", lambda t: t.update({mid + ".alpha": ([2], [1, 1])}))
odd("nan", lambda t: t.update({mid + ".alpha": ([], [float("nan")])}))
odd("rows", lambda t: pair(t, "lora_unet_double_blocks_1_img_attn_qkv", 4, 13, 2, 3), flux)
END
python3 make.py
names() { ckpt convert -qf "$1" "$2" --to safetensors --lora-names "$3"; }
for m in sd sdxl flux; do
    echo "-- $m"
    names $m d diffusers && ckpt ls d && names d c comfyui && ckpt ls c && names c d2 diffusers && cmp d d2 && names d2 k kohya && ckpt diff $m k
    names $m c2 comfyui && cmp c c2 && names c k2 kohya && cmp k k2
done
echo "-- the metadata"
names sd d diffusers && python3 - <<'END'
import json, struct
with open("d", "rb") as f:
    said = json.loads(f.read(struct.unpack("<Q", f.read(8))[0]))["__metadata__"]
print({k: v for k, v in said.items() if k != "lora_adapter_metadata"})
for k, v in json.loads(said["lora_adapter_metadata"]).items():
    print(k, v)
END
ckpt verify -q d --made-from sd --lora-names diffusers && echo "proved"
echo "-- parts of a module: the others are zeros, and go again"
names part k kohya && ckpt ls k && ckpt cat -q k lora_unet_single_blocks_0_linear1.lora_up.weight --range 0:12 && names k p diffusers && ckpt diff part p
echo "-- an alpha that the factors' dtype cannot hold"
for f in huge tiny odd even; do
    names $f k kohya && ckpt ls k | grep alpha && ckpt cat -q k lora_unet_single_blocks_0_linear1.alpha
done
names agrees k kohya && ckpt cat -q k lora_unet_single_blocks_0_linear1.alpha
echo "-- refused"
for f in unknown loha end other mixed twice noup rank alpha nan; do
    names $f x diffusers || echo "status $?"
done
for f in rows t5; do
    names $f x diffusers || echo "status $?"
done
for f in uneven ranks dora r_missing r_text list alpha_text pattern_list slora_number bare disagrees; do
    names $f x kohya || echo "status $?"
done
names both x diffusers && ckpt ls x
names x y kohya || echo "status $?"
names x y kohya:sd && ckpt ls y
names x y kohya:sdxl && ckpt ls y
names x y kohya:flux || echo "status $?"
names x y invoke || echo "status $?"
names x y kohya:sd3 || echo "status $?"
ckpt convert -q both x --to torch --lora-names diffusers || echo "status $?"
test ! -e x.partial
# metadata that lie about ranks and scales
python3 - <<'END'
import json, struct

q = 'unet.down_blocks.0.attentions.0.transformer_blocks.0.attn1.to_q.'
for i, text in enumerate(('{"unet.r": 1e400}', '{"unet.r": 99999999999999999999}', '{"unet.r": -2, "unet.lora_alpha": 2}',
                          '{"unet.r": 0, "unet.lora_alpha": 2}', '{"unet.r": 2, "unet.lora_alpha": NaN}', '[' * 5000, '')):
    head = {'__metadata__': {'lora_adapter_metadata': text},
            q + 'lora_A.weight': {'dtype': 'F32', 'shape': [2, 320], 'data_offsets': [0, 2560]},
            q + 'lora_B.weight': {'dtype': 'F32', 'shape': [320, 2], 'data_offsets': [2560, 5120]}}
    head = json.dumps(head).encode()
    open('lie%d.safetensors' % i, 'wb').write(struct.pack('<Q', len(head)) + head + bytes(5120))
END
for i in 0 1 2 3 4 5 6; do
    ckpt convert -q lie$i.safetensors lie.safetensors --lora-names kohya:sd; echo "lie $i: status $?"
done
