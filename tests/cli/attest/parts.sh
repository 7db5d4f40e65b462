# SPDX-License-Identifier: Apache-2.0
# Statements about files that are parts of a checkpoint, and about several sources: they verify, and a changed file is named.
cp -r "$FIXTURES/gguf_llama_deep/hf" src
chmod -R u+w src
proved() { # OUT STATEMENT OPTION...
    out=$1 statement=$2
    shift 2
    echo "-- $out $*"
    ckpt verify -q "$out" "$@" --attest "$statement" 2>warnings
    echo "status $?"
    grep -v "^ckpt: warning" warnings
}
change() { # FILE: change its last byte, and back
    python3 -c 'import sys; f = open(sys.argv[1], "r+b"); f.seek(-1, 2); b = f.read(1)[0]; f.seek(-1, 2); f.write(bytes([b ^ 1]))' "$1"
}
names() {
    echo "names: $(tr ' ' '\n' <"$1" | sed -n '/materials/,$p' | grep '^".*/*\(safetensors\|gguf\)",' | tr -d ',\n')"
}
echo "== shards as result and as source"
ckpt convert -q src shards --to hf --max-shard-size 100KB --attest shards.json
first=$(echo shards/*-00001-of-*.safetensors)
for out in shards $first shards/model.safetensors.index.json; do
    proved "$out" shards.json --made-from src
done
ckpt convert -q "$PWD/$first" one.pt --attest one.json && names one.json
proved one.pt one.json --made-from "$first"
proved one.pt one.json --made-from shards
mv shards moved
proved one.pt one.json --made-from moved
change moved/model-00002-of-00003.safetensors
proved one.pt one.json --made-from moved
proved moved shards.json --made-from src
change moved/model-00002-of-00003.safetensors
echo "== split GGUF"
ckpt convert -q src split.gguf --max-shard-size 60KB --attest split.json
proved split-00001-of-00004.gguf split.json --made-from src
mkdir sub && mv split-*.gguf sub
proved sub/split-00001-of-00004.gguf split.json --made-from src
ckpt convert -q sub/split-00001-of-00004.gguf back.safetensors --attest back.json && names back.json
proved back.safetensors back.json --made-from sub/split-00001-of-00004.gguf
change sub/split-00003-of-00004.gguf
proved sub/split-00001-of-00004.gguf split.json --made-from src
change sub/split-00003-of-00004.gguf
echo "== merges"
ckpt convert -q src half.safetensors --dtype bf16
change half.safetensors
ckpt merge -q ./src:0.25 "$PWD/half.safetensors:0.75" -o merged.safetensors --attest merged.json
names merged.json | sed "s|$PWD|PWD|"
proved merged.safetensors merged.json --made-from src:0.25 --made-from half.safetensors:0.75
change half.safetensors
proved merged.safetensors merged.json --made-from src:0.25 --made-from half.safetensors:0.75
change half.safetensors
printf 'merge_method: linear\nmodels: [{model: %s/src, parameters: {weight: 1}}, {model: half.safetensors, parameters: {weight: 3}}]\ndtype: float32\n' "$PWD" >merge.yml
ckpt merge -q --config merge.yml -o recipe.safetensors --attest recipe.json && names recipe.json
proved recipe.safetensors recipe.json --made-from merge.yml
echo "== adapters"
F=$FIXTURES/peft_tied_head
cp -r "$F/base" base && cp -r "$F/adapter" adapter && chmod -R u+w base adapter
ckpt convert -q base full --to hf --adapter "$PWD/adapter:0.5" --attest full.json && names full.json | sed "s|$PWD|PWD|"
proved full full.json --made-from base
change adapter/adapter_model.safetensors
proved full full.json --made-from base
change adapter/adapter_model.safetensors
ckpt convert -q base full2 --to hf --adapter adapter --attest full2.json && proved full2 full2.json --made-from base
proved full full2.json --made-from base 2>&1 | grep -v warning
echo "== runs"
cp -r "$FIXTURES/z1_bf16_w2_fp32acc/ckpt" run && chmod -R u+w run
ckpt reshard -q run w1 -w 1 --attest w1.json && tr ' ' '\n' <w1.json | grep '_model_states.pt"'
proved w1 w1.json --made-from run
