# SPDX-License-Identifier: Apache-2.0
# What is no merge, or none that is known: a reason, and nothing is written.
W=$FIXTURES/hf_bert_sharded
try() {
    ckpt merge -q "$@"
    echo "status $?"
    [ ! -e out ] || echo "out was written"
}
config() {
    printf '%s\n' "$@" >config.yaml
    try --config config.yaml -o out
}
try
try -o out
try "$W"
try -o out --method passthrough "$W"
try -o out --method ties "$W"
try -o out --method linear --base "$W" "$W"
try -o out --method slerp "$W" "$FIXTURES/peft_tied_head/base"
try -o out --method slerp "$W" "$W"
try -o out "$W" "$FIXTURES/peft_tied_head/base"
try -o out "$W" nowhere
try -o out "$W:1" "$W:-1"
try -o out --to zero "$W"
try -o out --last 2 "$W"
try -o out --last 2 "$W" "$W"
try -o out --last 20 "$FIXTURES/z1_bf16_w2_tags/ckpt"
ckpt convert -q "$W" less.safetensors --exclude '*LayerNorm.bias'
try -o out "$W" less.safetensors
try -o out less.safetensors "$W"
config 'merge_method: [linear'
config 'merge_method: della' 'models: []'
config 'merge_method: linear' 'models: []'
config 'merge_method: linear' "models: [{model: $W}]"
config 'merge_method: linear' "models: [{model: $W, parameters: {weight: x}}]"
config 'merge_method: linear' "models: [{model: $W, parameters: {wait: 1}}]"
config 'merge_method: linear' "models: [{model: $W, parameters: {weight: 1}}]" 'tokenizer_source: union'
config 'merge_method: linear' "models: [{model: &m $W, parameters: {weight: 1}}, {model: *m}]"
config 'merge_method: slerp' "base_model: $W" 'slices: [{sources: []}, {sources: []}]'
config 'merge_method: linear' 'merge_method: ties'
config 'merge_method: linear' 'modules: {}'
ls
# one model is no merge; a configuration of mergekit may have one
rm -rf out
try -o out "$W:0.5"
ckpt merge -qn -o out "$W" "$W:0.5" && echo planned
config 'merge_method: linear' "models: [{model: $W, parameters: {weight: 1}}]"
