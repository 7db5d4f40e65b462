# SPDX-License-Identifier: Apache-2.0
# Two layouts of one model: a built-in map leads from one to the other, and single elements are still found.
F=$FIXTURES
pair() { # A B [OPTION...]: in either order
    a=$1 b=$2
    shift 2
    echo "-- ${a#"$F"/} ${b#"$F"/} $*"
    ckpt diff "$@" "$a" "$b" 2>&1 | sed "s|$F/||" | tail -3
    ckpt diff "$@" "$b" "$a" >/dev/null 2>&1
    echo "in the other order: exit status $?"
}
pair "$F"/map_meta_s1/meta "$F"/map_meta_s1/hf
pair "$F"/map_meta_llama2_s2/meta "$F"/map_meta_llama2_s2/hf
pair "$F"/map_mcore_gpt2/megatron.safetensors "$F"/map_mcore_gpt2/hf
pair "$F"/map_mcore_mixtral/megatron.safetensors "$F"/map_mcore_mixtral/hf
pair "$F"/map_qwen3moe_experts/hf "$F"/map_qwen3moe_experts/stacked.safetensors
for hf in "$F"/gguf_llama_deep/hf "$F"/gguf_mixtral/hf; do
    ckpt convert -qf --dtype f32 "$hf" m.gguf && pair m.gguf "$hf"
done
# a folder whose experts are stacked, as transformers has them in memory
ckpt convert -q --map hf:packed "$F"/gguf_mixtral/hf memory.safetensors
ckpt convert -q --to hf --map none --config "$F"/gguf_mixtral/hf memory.safetensors packed 2>/dev/null
pair m.gguf packed
ckpt convert -qf "$F"/map_meta_s1/hf m.gguf 2>/dev/null && pair m.gguf "$F"/map_meta_s1/meta
ckpt convert -q "$F"/mlegacy_gpt2_tp2_pp2/ckpt exported --to hf 2>/dev/null; pair "$F"/mlegacy_gpt2_tp2_pp2/ckpt exported
ckpt convert -q --map hf:torchtitan "$F"/map_meta_s1/hf titan.safetensors && pair titan.safetensors "$F"/map_meta_s1/hf
echo "-- one element"
cp -r "$F"/map_meta_s1/hf changed && chmod -R u+w changed
file=$(ls changed/*.safetensors | head -n 1)
printf '\077' | dd of="$file" bs=1 seek=$(($(wc -c <"$file") - 1)) conv=notrunc 2>/dev/null
ckpt diff changed "$F"/map_meta_s1/meta 2>/dev/null; echo "exit status $?"
ckpt diff -q changed m.gguf; echo "exit status $?"
ckpt diff --json m.gguf "$F"/map_meta_s1/hf | grep -e map -e dtypes -e equal
echo "-- slices that nothing joins"
cp -r "$F"/map_meta_llama2_s2/meta cut && chmod -R u+w cut && rm cut/params.json
ckpt diff cut cut; echo "exit status $?"
ckpt diff cut "$F"/map_meta_llama2_s2/meta; echo "exit status $?"
ckpt diff --keep-slices cut "$F"/map_meta_llama2_s2/meta; echo "exit status $?"
ckpt diff -q "$F"/map_meta_llama2_s2/meta "$F"/map_meta_llama2_s2/meta; echo "exit status $?"
echo "-- what the user chooses"
ckpt diff --map none "$F"/map_meta_s1/meta "$F"/map_meta_s1/hf 2>&1 | tail -1
ckpt diff --map meta-llama:hf "$F"/map_meta_s1/meta "$F"/map_meta_s1/hf 2>&1 | tail -1
ckpt diff --map hf:meta-llama "$F"/map_meta_s1/hf "$F"/map_meta_s1/meta 2>&1 | tail -1
ckpt convert -qf "$F"/map_meta_s1/hf m.gguf 2>/dev/null
echo "-- a layout for each side, without a map between both"
sides() { ckpt diff --json --map "$@" 2>/dev/null | grep -e '"map_' -e '"equal"'; }
sides torchtitan:gguf titan.safetensors m.gguf
sides meta-llama:torchtitan "$F"/map_meta_s1/meta titan.safetensors
sides gguf:gguf m.gguf m.gguf
sides hf:hf "$F"/map_meta_s1/hf "$F"/map_meta_s1/hf
ckpt diff -q --map torchtitan:gguf titan.safetensors "$F"/map_meta_s1/hf; echo "exit status $?"
echo "-- no such layout; sizes"
ckpt diff --map hf:martian "$F"/map_meta_s1/hf "$F"/map_meta_s1/meta; echo "exit status $?"
# Meta's names in a file alone, whose sizes the other side has
ckpt convert -q "$F"/map_meta_s1/meta meta.safetensors && pair meta.safetensors m.gguf
# a file of names and values says nothing of heads
ckpt convert -q "$F"/map_meta_s1/hf bare.safetensors
ckpt diff titan.safetensors bare.safetensors 2>&1 | sed -n '1p;$p'
ckpt diff --config "$F"/map_meta_s1/hf/config.json titan.safetensors bare.safetensors 2>&1 | tail -1
ckpt diff --size heads=5 --size kv=1 titan.safetensors bare.safetensors 2>&1 | tail -1
echo "-- transformers' names of a model that --config describes, without a folder"
ckpt convert -q "$F"/map_qwen3moe_experts/hf apart.safetensors
ckpt diff --config "$F"/map_qwen3moe_experts/hf/config.json "$F"/map_qwen3moe_experts/stacked.safetensors apart.safetensors
ckpt diff --config "$F"/map_qwen3moe_experts/hf/config.json apart.safetensors apart.safetensors
echo "-- tensors beside the model of a run that a map brings to another layout"
ckpt reshard -q "$F"/mlegacy_gpt2_tp2_pp2/ckpt run --to dcp 2>/dev/null
ckpt convert -q --to hf run/global_step3 from_run --size heads=4 2>/dev/null
ckpt diff --size heads=4 run/global_step3 from_run 2>&1 | grep -v "^ckpt: .*no config.json"
