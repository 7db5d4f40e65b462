# SPDX-License-Identifier: Apache-2.0
# Proof that a file is the conversion of a model, whatever program wrote it: GGUF files by llama.cpp's quantizer, merges by peft.
F=$FIXTURES
made() { # the same, and only the result with its command
    ckpt verify "$@" 2>/dev/null | sed -n '/made by/,$p'
}
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
ckpt verify "$F"/gguf_mixtral/*.gguf --made-from "$F"/gguf_mixtral/hf 2>/dev/null | tail -3
made "$F"/map_mcore_gpt2/megatron.safetensors --made-from "$F"/map_mcore_gpt2/hf
made "$F"/map_mcore_gpt2/hf --made-from "$F"/map_mcore_gpt2/megatron.safetensors
prove "$F"/map_meta_s1/hf "$F"/map_meta_s1/meta
prove "$F"/map_meta_llama2_s2/hf "$F"/map_meta_llama2_s2/meta
ckpt convert -q "$F"/map_meta_s1/hf m.gguf 2>/dev/null && prove m.gguf "$F"/map_meta_s1/meta
prove m.gguf "$F"/map_meta_s1/meta --ignore-metadata
ckpt convert -q --dtype f16 "$F"/z1_bf16_w3_groups/ckpt half.safetensors && prove half.safetensors "$F"/z1_bf16_w3_groups/ckpt
prove half.safetensors "$F"/z1_bf16_w3_groups/ckpt --exclude '*bias*'
prove "$F"/peft_tied_head/merged "$F"/peft_tied_head/base --adapter "$F"/peft_tied_head/adapter
prove "$F"/peft_tied_head/merged "$F"/peft_tied_head/base --adapter "$F"/peft_tied_head/adapter --tol 0
prove "$F"/peft_tied_head/merged "$F"/peft_tied_head/base --adapter "$F"/peft_tied_head/adapter:1.0000002
prove "$F"/peft_tied_head/merged "$F"/peft_tied_head/base --adapter "$F"/peft_tied_head/adapter:1.0000002 --tol 0
made "$F"/peft_tied_head/merged --made-from "$F"/peft_tied_head/base --adapter "$F"/peft_tied_head/adapter
echo "-- merges"
ckpt convert -q --dtype f16 "$F"/peft_tied_head/base 2.safetensors && ckpt convert -q --dtype f16 "$F"/peft_tied_head/merged 4.safetensors
ckpt merge -q 2.safetensors:0.3 4.safetensors:0.9 -o mean.safetensors
made mean.safetensors --made-from 2.safetensors:0.3 --made-from 4.safetensors:0.9
made mean.safetensors --made-from 2.safetensors:0.4 --made-from 4.safetensors:0.9 | grep -v values:
printf 'merge_method: ties\nbase_model: 2.safetensors\nmodels: [{model: 4.safetensors, parameters: {weight: 0.5, density: 0.5}}]\ndtype: float16\n' >merge.yml
ckpt merge -q --config merge.yml -o ties.safetensors
made ties.safetensors --made-from merge.yml
made ties.safetensors --made-from 4.safetensors:0.5 --method ties --base 2.safetensors --density 0.5
prove ties.safetensors merge.yml --tol 0
prove mean.safetensors merge.yml --method ties
echo "-- training state"
Z=$F/z3_bf16_w5_odd/ckpt
ckpt reshard -q --world 2 --stage 2 "$Z" run && made run --made-from "$Z"
made run/global_step4 --made-from "$Z" --world 2
ckpt reshard -q --to dcp --world 2 "$Z" dcp && made dcp --made-from "$Z"
ckpt reshard -q --to universal "$Z" uni && made uni --made-from "$Z"
ckpt reshard -q --to zero uni back --world 5 --stage 3 && made back --made-from uni
ckpt reshard -q --drop-optimizer "$Z" fresh && prove fresh "$Z" --drop-optimizer
prove fresh "$Z" | sed 3q
ckpt verify --to-tag x uni --made-from "$Z"
echo "-- other options"
ckpt convert -q --exclude '*bias*' --dtype 'f16:emb.*,bf16' "$Z" m.safetensors && made m.safetensors --made-from "$Z" --exclude '*bias*'
ckpt convert -q --quantize fp8-block:16x16 --quantize-skip '*q_proj*' "$F"/gguf_llama_deep/hf fp8 --to hf && made fp8 --made-from "$F"/gguf_llama_deep/hf --quantize fp8-block:16x16 --quantize-skip '*q_proj*'
prove fp8 "$F"/gguf_llama_deep/hf --quantize fp8-block:16x16 | tail -2
echo "-- metadata"
cp -r "$F"/gguf_llama_deep/hf hf && chmod -R u+w hf
sed -i 's/"rope_theta": [0-9.]*/"rope_theta": 7.0/; s/"transformers_version": "/&9/' hf/config.json
prove hf "$F"/gguf_llama_deep/hf
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
prove "$F"/mcore_llama_distopt_dp2/ckpt half.safetensors
prove half.safetensors nowhere
ckpt verify half.safetensors m.gguf --made-from "$F"/map_meta_s1/hf; echo "exit status $?"
ckpt verify -q half.safetensors --untie
