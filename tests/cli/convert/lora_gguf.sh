# SPDX-License-Identifier: Apache-2.0
# An adapter as the GGUF file that llama.cpp loads beside its base, and back.
src=$FIXTURES/trainer_lora_z3
mkdir base in
echo '{"model_type": "llama", "num_attention_heads": 4, "num_key_value_heads": 2, "hidden_size": 16, "num_hidden_layers": 2}' >base/config.json
cp "$src"/adapter_* in
base="--config base/config.json"
ckpt convert in a.gguf $base && ckpt ls a.gguf && ckpt info a.gguf | grep -e architecture -e keys && ckpt verify -q a.gguf
# rows of heads go from halves to pairs in lora_b; no other numbers move
q=layers.0.self_attn.q_proj
ckpt cat -q "in/adapter_model.safetensors" base_model.model.model.$q.lora_B.weight | paste -d' ' - - - - | head -4
ckpt cat -q a.gguf blk.0.attn_q.weight.lora_b | paste -d' ' - - - - | head -4
echo "-- back, with the configuration of the base or its sizes"
ckpt convert -q a.gguf back --to hf $base && ls back && ckpt diff in back
grep -e '"lora_alpha"' -e '"r"' -e _pattern -e q_proj back/adapter_config.json
ckpt convert -q a.gguf sizes --to hf --size heads=4 --size kv=2 && ckpt diff -q back sizes && cmp back/adapter_config.json sizes/adapter_config.json
ckpt convert -q a.gguf none --to hf || echo "status $?"
ckpt verify -q a.gguf --made-from in $base && ckpt verify -q back --made-from a.gguf $base; echo "status $?"
echo "-- out of a run's shards, in other types, and a copy"
ckpt convert -q "$src" run.gguf $base && ckpt convert -q in f32.gguf $base --dtype f32 && ckpt diff --tol 2e-5 run.gguf f32.gguf
ckpt convert -q a.gguf copy.gguf --dtype f16 && ckpt ls copy.gguf | head -1 && ckpt info copy.gguf | grep keys
ckpt convert -q in q8.gguf $base --dtype q8_0 && ckpt ls q8.gguf | head -1
ckpt convert -q in q4.gguf $base --dtype q4_k_m || echo "status $?"
ckpt convert -q in cut.gguf $base --max-shard-size 1KB || echo "status $?"
echo "-- other scales"
set_to() { rm -rf "$1"; cp -r in "$1"; sed -i "$2" "$1/adapter_config.json"; }
set_to rs 's/"use_rslora": false/"use_rslora": true/'
ckpt convert rs rs.gguf $base 2>&1 | grep rsLoRA; ckpt convert -q rs.gguf rs_back --to hf $base && grep '"lora_alpha"' rs_back/adapter_config.json
set_to odd 's/"alpha_pattern": {}/"alpha_pattern": {"layers.1.self_attn.v_proj": 2}/'
ckpt convert -q odd x.gguf $base || echo "status $?"
set_to zero 's/"lora_alpha": 8/"lora_alpha": 0/'
ckpt convert -q zero x.gguf $base || echo "status $?"
set_to rank 's/"r": 4/"r": 2/'
ckpt convert -q rank x.gguf $base || echo "status $?"
echo "-- another model's configuration"
sed 's/"hidden_size": 16/"hidden_size": 64/' base/config.json >other.json
ckpt convert -q in x.gguf --config other.json || echo "status $?"
ckpt convert -q a.gguf x --to hf --config other.json || echo "status $?"
for change in 's/"num_hidden_layers": 2/"num_hidden_layers": 1/' 's/}/, "intermediate_size": 48}/' 's/"num_key_value_heads": 2/"num_key_value_heads": 4/'; do
    sed "$change" base/config.json >other.json
    # k_proj and gate_proj as the base of the same widths has them
    mkdir -p wide; cp in/adapter_config.json wide
    echo "base_model.model.model.layers.{i}.self_attn.v_proj.{p...} = base_model.model.model.layers.{i}.self_attn.k_proj.{p...}
base_model.model.model.layers.{i}.self_attn.q_proj.{p...} = base_model.model.model.layers.{i}.mlp.gate_proj.{p...}" >rules
    ckpt convert -q -f in/adapter_model.safetensors wide/adapter_model.safetensors --rename rules
    sed -i 's/"q_proj"/"gate_proj"/; s/"v_proj"/"k_proj"/' wide/adapter_config.json
    ckpt convert -q wide x.gguf --config other.json || echo "status $?"
done
ckpt convert -q -f wide wide.gguf $base && ckpt ls wide.gguf | tail -1
sed 's/"llama"/"qwen2"/' base/config.json >other.json
ckpt convert -q a.gguf x --to hf --config other.json --strict || echo "status $?"
ckpt convert -q "$FIXTURES/gguf_llama_deep/Q4_0.gguf" x --to hf --config other.json --strict || echo "status $?"
echo "-- what the file cannot express"
for change in 's/"use_dora": false/"use_dora": true/' 's/"bias": "none"/"bias": "lora_only"/' 's/"modules_to_save": null/"modules_to_save": ["lm_head"]/' \
    's/"init_lora_weights": true/"init_lora_weights": "pissa"/' 's/"peft_type": "LORA"/"peft_type": "IA3"/'; do
    set_to other "$change"
    ckpt convert -q other x.gguf $base || echo "status $?"
done
ckpt convert -q in half.safetensors --exclude '*0.self_attn.q_proj.lora_B*'
ckpt convert -q in less.gguf $base --exclude '*0.self_attn.q_proj*' && ckpt ls less.gguf | tail -1
mkdir half; mv half.safetensors half/adapter_model.safetensors; cp in/adapter_config.json half
ckpt convert -q half x.gguf $base || echo "status $?"
for kind in peft_tied_head peft_gpt2_conv1d lora_packed; do
    ckpt convert -q "$FIXTURES/$kind/adapter" x.gguf --config "$FIXTURES/$kind/base/config.json" || echo "status $?"
done
# a layer that the rules for the model transpose, and one that they drop
mkdir odd_names
cp in/adapter_config.json odd_names
sed -i 's/"target_modules": \[/"target_modules": ["c_attn", "lm_head",/' odd_names/adapter_config.json
only='--include *layers.0.self_attn.q_proj*'
for name in transformer.h.0.attn.c_attn lm_head; do
    echo "base_model.model.model.layers.0.self_attn.q_proj.{p...} = base_model.model.$name.{p...}" >rules
    ckpt convert -q -f in/adapter_model.safetensors odd_names/adapter_model.safetensors $only --rename rules
    for kind in gpt2 llama; do
        echo '{"model_type": "'$kind'", "num_attention_heads": 4, "num_key_value_heads": 2, "hidden_size": 16, "tie_word_embeddings": true}' >$kind.json
        ckpt convert -q odd_names x.gguf --config $kind.json || echo "status $?"
    done
done
ckpt convert -q in x.gguf || echo "status $?"
# an embedding, of which llama.cpp has A transposed
echo "blk.0.attn_q{q...} = token_embd{q...}" >rules
ckpt convert -q a.gguf embedding.gguf --include 'blk.0.attn_q*' --rename rules
ckpt convert -q embedding.gguf x.gguf --to hf $base || echo "status $?"
test ! -e x.gguf && echo nothing
