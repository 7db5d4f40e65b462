# SPDX-License-Identifier: Apache-2.0
# Layout maps: there and back; sizes that do not fit, tensors that no rule names, and rules that are none.
hf=$FIXTURES/map_mcore_mixtral/hf
ckpt convert -q --map hf:megatron "$hf" m.safetensors && ckpt diff m.safetensors "$FIXTURES"/map_mcore_mixtral/megatron.safetensors
ckpt convert -q --map megatron:hf m.safetensors back.safetensors; echo $?
ckpt convert -q --map megatron:hf --config "$hf"/config.json m.safetensors back.safetensors && ckpt diff back.safetensors "$hf"
ckpt convert -q --map hf:meta-llama "$hf" none.pt; echo $?
ckpt convert -q --map hf:martian "$hf" none.pt; echo $?
ckpt convert -q --map hf:megatron --size heads=5 "$hf" none.safetensors; echo $?
ckpt convert -q --map hf:megatron --size wings=5 "$hf" none.safetensors; echo $?
# the hub's layout: experts apart, where config.json says that it is such a model
mkdir memory && cp "$FIXTURES"/map_qwen3moe_experts/stacked.safetensors memory && cp "$FIXTURES"/map_qwen3moe_experts/hf/config.json memory
ckpt convert -q --to hf memory/stacked.safetensors hub && ckpt diff hub "$FIXTURES"/map_qwen3moe_experts/hf
ckpt convert -q --to hf --layout native memory/stacked.safetensors kept && ckpt diff kept memory/stacked.safetensors
ckpt convert -q --to hf --layout martian memory/stacked.safetensors none
ckpt convert -q --to hf --map none memory/stacked.safetensors native && ckpt diff native memory/stacked.safetensors
try() {
    printf "$1\n" >a.map
    ckpt convert -q --map a.map "$hf" none.safetensors 2>&1 | grep -v Try
}
try 'others stay\nlm_head.weight "(a b) c" = x "c b"'
try 'others stay\nlm_head.weight "(a b) c" = x "c b a'
try 'others stay\nlm_head.weight "(a b) c" = x "a b c" = y'
try 'others stay\nsizes\n a = b\n b = a\ntensors\nlm_head.weight "(a b) c" = x "a b c"'
try 'others stay\nsizes\n a = 7 / 0'
try 'others stay\nsizes\n a = 7\ntensors\nlm_head.weight "(a b) c" = x "a b c"'
try 'others stay\nlm_head.weight "(a b) c" = x "a b c"'
try 'others stay\nsizes\n a = 99999999999999999999\n'
try 'others stay\nlm_head.weight "a (c|d)" = x "a c"'
try 'others stay\n{i}{i} x{i}'
try 'others stay\n{i x'
try 'others stay\n* same'
try 'keys\na.b u8 = 256\ntensors\nothers stay'
try 'keys\na.b u8 = nobody_knows\ntensors\nothers stay'
# what is worked out for each element is bounded
{
    printf 'others stay\nsizes\n s8 = index\n n = 9\n'
    for i in 0 1 2 3 4 5 6 7; do printf ' s%d = ' $i && for k in 1 2 3 4 5 6 7 8 9; do printf 's%d + ' $((i + 1)); done && echo 1; done
    printf 'tensors\nfill right x "n" with s0\n'
} >a.map
ckpt convert -q --map a.map "$hf" none.safetensors; echo $?
ls
echo "-- a direction that the layouts name already; a suffix of another format"
ckpt convert -q "$FIXTURES/map_meta_s1/meta" twice --to hf --map meta-llama:hf --backwards || echo "status $?"
ckpt convert -q "$FIXTURES/map_meta_s1/meta" named.safetensors --to npz && ckpt info named.safetensors | grep format
