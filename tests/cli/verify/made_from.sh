# SPDX-License-Identifier: Apache-2.0
# Proof that a file is the conversion of a model, whatever program wrote it: GGUF files by llama.cpp's quantizer, merges by peft.
F=$FIXTURES
prove() { # OUT SRC [OPTION...]
    out=$1 src=$2
    shift 2
    echo "-- ${out#"$F"/} ${src#"$F"/} $*"
    ckpt verify -q "$out" --made-from "$src" "$@" 2>&1
    echo "exit status $?"
}
for gguf in "$F"/gguf_bert/*.gguf "$F"/gguf_llama_deep/*.gguf "$F"/gguf_mixtral/*.gguf; do
    prove "$gguf" "$(dirname "$gguf")"/hf
done
ckpt verify "$F"/gguf_mixtral/*.gguf --made-from "$F"/gguf_mixtral/hf 2>/dev/null | tail -1
prove "$F"/map_meta_s1/hf "$F"/map_meta_s1/meta
prove "$F"/map_meta_llama2_s2/hf "$F"/map_meta_llama2_s2/meta
ckpt convert -q "$F"/map_meta_s1/hf m.gguf 2>/dev/null && prove m.gguf "$F"/map_meta_s1/meta
ckpt convert -q --dtype f16 "$F"/z1_bf16_w3_groups/ckpt half.safetensors && prove half.safetensors "$F"/z1_bf16_w3_groups/ckpt
prove half.safetensors "$F"/z1_bf16_w3_groups/ckpt --exclude '*bias*'
prove "$F"/peft_tied_head/merged "$F"/peft_tied_head/base --adapter "$F"/peft_tied_head/adapter
prove "$F"/peft_tied_head/merged "$F"/peft_tied_head/base --adapter "$F"/peft_tied_head/adapter --tol 1e-6
echo "-- one bit, also the sign of a zero"
cp half.safetensors changed.safetensors
chmod u+w changed.safetensors
python3 -c 'import json, struct; f = open("changed.safetensors", "r+b"); n = struct.unpack("<Q", f.read(8))[0]; h = json.loads(f.read(n))
f.seek(8 + n + h["ln_f.bias"]["data_offsets"][0] + 3); b = f.read(1)[0]; f.seek(-1, 1); f.write(bytes([b ^ 4]))'
ckpt verify changed.safetensors --made-from "$F"/z1_bf16_w3_groups/ckpt 2>/dev/null | tail -2
ckpt verify --json changed.safetensors --made-from "$F"/z1_bf16_w3_groups/ckpt 2>/dev/null | sed -n '/made_from/,$p'
python3 -c 'import json, struct; h = json.dumps({"w": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}).encode()
for name, sign in (("plus", b"\0"), ("minus", b"\x80")): open(name + ".safetensors", "wb").write(struct.pack("<Q", len(h)) + h + b"\0\0\0" + sign + b"\0\0\0\0")'
prove plus.safetensors minus.safetensors
prove plus.safetensors plus.safetensors
echo "-- what convert refuses"
# a head that differs from the table to which config.json ties it
cp -r "$F"/gguf_llama_deep/hf tied && chmod -R u+w tied
ckpt convert -q --exclude lm_head.weight --map none tied body.safetensors
sed -i 's/"tie_word_embeddings": false/"tie_word_embeddings": true/' tied/config.json
cp -r tied whole && rm whole/*.safetensors* && cp body.safetensors whole/model.safetensors
ckpt convert -q whole head.gguf 2>/dev/null; echo "exit status $?"
prove head.gguf tied
prove head.gguf whole
ckpt diff --map hf:gguf tied head.gguf 2>&1 | tail -1
ckpt diff whole head.gguf 2>/dev/null
# values beyond the range of the dtype
python3 -c 'import json, struct
for name, dtype, size, data in (("wide", "F32", 4, struct.pack("<2f", 1e30, 2)), ("narrow", "F16", 2, struct.pack("<2e", float("inf"), 2))):
    h = json.dumps({"w": {"dtype": dtype, "shape": [2], "data_offsets": [0, 2 * size]}}).encode()
    open(name + ".safetensors", "wb").write(struct.pack("<Q", len(h)) + h + data)'
prove narrow.safetensors wide.safetensors
prove half.safetensors "$F"/z1_bf16_w3_groups/ckpt --tag global_step4
echo "-- what cannot be proved"
prove "$F"/z1_bf16_w3_groups/ckpt half.safetensors
prove half.safetensors nowhere
ckpt verify half.safetensors m.gguf --made-from "$F"/map_meta_s1/hf; echo "exit status $?"
ckpt verify -q half.safetensors --untie
