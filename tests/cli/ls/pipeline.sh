# SPDX-License-Identifier: Apache-2.0
# A pipeline of diffusers is one source: each tensor has its component's name in front.
src=$FIXTURES/diffusers
mkdir -p pipe/scheduler pipe/tokenizer && cp -r "$src" pipe/unet && cp -r "$src" pipe/vae
echo '{}' >pipe/scheduler/scheduler_config.json && echo '{}' >pipe/tokenizer/tokenizer_config.json
ckpt convert -q "$src" fp16 --to hf --dtype f16 --max-shard-size 4KB
cat >pipe/model_index.json <<'END'
{"_class_name": "TestPipeline", "_diffusers_version": "0.42.1", "unet": ["diffusers", "UNet2DModel"], "vae": ["diffusers", "UNet2DModel"],
 "scheduler": ["diffusers", "DDPMScheduler"], "tokenizer": ["transformers", "CLIPTokenizerFast"], "safety_checker": [null, null], "requires_safety_checker": false}
END
ckpt ls pipe | grep 'conv_in\|tensors' && ckpt info pipe && ckpt verify -q pipe && ckpt diff pipe pipe/model_index.json
echo "-- shards and another dtype in one component"
cp -r pipe other && rm other/vae/* && cp fp16/* other/vae
ckpt diff pipe other | sed -n '1p;$p' && ckpt verify -q other && ckpt convert -q other one.safetensors --to safetensors --include 'vae/*' && ckpt ls one.safetensors | head -n 2
echo "-- a component goes, weights go, a shard goes"
rm -r other/scheduler && { ckpt ls other || echo "status $?"; }
mkdir other/scheduler && rm other/vae/*-00002-of-* && { ckpt verify other || echo "status $?"; }
rm other/vae/*safetensors* && { ckpt ls other || echo "status $?"; }
echo "-- no pipelines"
mkdir none && for text in '{"unet": ["diffusers", null]}' '{"a/b": ["diffusers", "UNet2DModel"]}' '[]' '{'; do
    echo "$text" >none/model_index.json && { ckpt ls none || echo "status $?"; }
done
echo "-- folders with weights that the index leaves out, or that it lists otherwise"
mkdir few && ln -s ../pipe/unet ../pipe/vae few
pair='"unet": ["diffusers", "UNet2DModel"]'
for vae in '"x": 1' '"vae": [null, null]' '"vae": ["a", "MyUnetProcessor"]' '"_vae": ["diffusers", "UNet2DModel"]' \
    '"vae": ["diffusers", null]' '"vae": "UNet2DModel"' '"vae": ["diffusers", "UNet2DModel", "x"]' '"shift": [0.1, 0.2], "mode": "a"'; do
    echo "{$pair, $vae}" >few/model_index.json && { ckpt ls few | tail -n 1; } 2>&1
done
echo "-- a component whose config.json says that it is quantized"
rm few/unet && cp -r pipe/unet few && ckpt convert -q pipe/vae eight --to hf --quantize fp8-block:1x1 --force && ls eight
cp eight/* few/unet && echo "{$pair}" >few/model_index.json && ckpt info few | grep quantized
ckpt convert -q few x.safetensors --to safetensors --dtype f32
ckpt convert -q few/unet y.safetensors --to safetensors --dtype f32
ckpt ls x.safetensors | sed 's,unet/,,' | head -n 2; ckpt ls y.safetensors | head -n 2
tail -c 64 x.safetensors | cksum; tail -c 64 y.safetensors | cksum
echo "-- a kind that ckpt cannot dequantize"
sed -i 's/"fp8"/"hqq"/' few/unet/config.json && ckpt info few | grep quantized
ckpt convert -qf few x.safetensors --to safetensors --dtype f32 || echo "status $?"
