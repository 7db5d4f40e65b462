# SPDX-License-Identifier: Apache-2.0
# config.json says that the weights are quantized, but they are floats: a warning, and an output of floats.
make() { # FOLDER METHOD KEY
    cp -r "$FIXTURES/gguf_llama_deep/hf" "$1"
    sed "s/^{/{\"$3\": {\"quant_method\": \"$2\"}, /" "$FIXTURES/gguf_llama_deep/hf/config.json" >"$1/config.json"
}
for method in gptq awq bitsandbytes fp8 mxfp4 hqq; do
    make $method $method quantization_config
    ckpt verify -q --strict $method
    echo "$method: $?"
done
make old compressed-tensors compression_config
sed -i 's/compressed-tensors"/&, "config_groups": {"group_0": {}}/' old/config.json
ckpt verify old
# the output says what its weights are
cp gptq/config.json gptq/quantize_config.json
ckpt convert gptq out --to hf 2>&1 | grep -v wrote
ls out
ckpt verify -q --strict out && ckpt diff -q gptq out
grep -c quantization_config out/config.json
ckpt convert -q --strict gptq strict --to hf 2>/dev/null
echo "$?"
ckpt convert -q gptq half --to hf --dtype fp16 2>/dev/null && ckpt verify -q --strict half
ckpt convert -q gptq m.gguf --to gguf 2>/dev/null && ckpt verify -q m.gguf
# the configuration of another folder
ckpt convert -q "$FIXTURES/gguf_llama_deep/hf/model.safetensors" given --to hf --config gptq
grep -c quantization_config given/config.json
# numbers, but of another method
ckpt convert -q "$FIXTURES/gguf_llama_deep/hf" block --to hf --quantize fp8-block:16x32
sed -i 's/"quant_method": *"fp8"/"quant_method": "gptq"/' block/config.json
ckpt verify block
