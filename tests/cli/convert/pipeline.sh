# SPDX-License-Identifier: Apache-2.0
# A pipeline of diffusers becomes a pipeline: folders of components in diffusers' file names, other files as they were, the index last.
src=$FIXTURES/diffusers
mkdir -p pipe/scheduler pipe/tokenizer pipe/images && cp -r "$src" pipe/unet && cp -r "$src" pipe/vae
echo '{"a": 1}' >pipe/scheduler/scheduler_config.json && echo 'a b' >pipe/tokenizer/merges.txt && echo '{}' >pipe/tokenizer/tokenizer_config.json
echo card >pipe/README.md && echo png >pipe/images/a.png && echo old >pipe/model.safetensors
cat >pipe/model_index.json <<'END'
{"_class_name": "TestPipeline", "unet": ["diffusers", "UNet2DModel"], "vae": ["diffusers", "UNet2DModel"], "scheduler": ["diffusers", "DDPMScheduler"],
 "tokenizer": ["transformers", "CLIPTokenizerFast"], "safety_checker": [null, null], "requires_safety_checker": false}
END
files() { (cd "$1" && find . -type f | LC_ALL=C sort); }
others() { for f in model_index.json scheduler/scheduler_config.json tokenizer/merges.txt unet/config.json vae/config.json; do cmp "pipe/$f" "$1/$f" || echo "$f differs"; done; }
ckpt convert pipe out --to hf | sed 's/ in .*s)//' && files out && others out && ckpt diff pipe out && ckpt verify -q out
cmp pipe/vae/diffusion_pytorch_model.safetensors out/vae/diffusion_pytorch_model.safetensors && echo "the same bytes"
echo "-- a second time, in shards, in place of the first"
ckpt convert -q pipe out --to hf --max-shard-size 4KB || echo "status $?"
ckpt convert -q pipe out --to hf --max-shard-size 4KB --force && files out && ckpt diff pipe out
ckpt convert -q pipe out --to hf --force --manifest && files out && ckpt verify -q out
mkdir -p stale/vae && echo x >stale/vae/diffusion_pytorch_model.safetensors.index.json && { ckpt convert -q pipe stale --to hf || echo "status $?"; }
ckpt convert -q pipe stale --to hf --force && ls stale/vae
echo "-- other dtypes; modules that stay F32"
ckpt convert -q pipe half --to hf --dtype f16 && ckpt ls half | tail -n 2
ckpt verify -q half --made-from pipe && ckpt verify half --made-from pipe 2>/dev/null | tail -n 1
ckpt verify -q half --made-from pipe --dtype bf16 >/dev/null || echo "status $?"
ckpt convert -q pipe mixed --to hf --dtype 'bf16:vae/*,f16:unet/conv_in*' && ckpt ls mixed --include '*conv_in.weight' && ls mixed/vae
sed 's/UNet2DModel"\], "vae/WanTransformer3DModel"], "vae/' pipe/model_index.json >wan.json && cp -r pipe wan && cp wan.json wan/model_index.json
ckpt convert wan wide --to hf --dtype bf16 2>&1 | grep F32 && ckpt ls wide --include '*mid_block.resnets.0.norm?.bias'
ckpt convert -q wan all --to hf --dtype "bf16:*" && ckpt ls all --include '*mid_block.resnets.0.norm1.bias'
sed 's/UNet2DModel/WanTransformer3DModel/' "$src/config.json" >wan/unet/config.json
ckpt convert wan/unet alone --to hf --dtype f16 2>&1 | grep F32
echo "-- a variant"
cp -r pipe variant && mv variant/unet/diffusion_pytorch_model.safetensors variant/unet/diffusion_pytorch_model.fp16.safetensors
ckpt convert -q variant v --to hf && ls v/unet v/vae && ckpt convert -q variant v --to hf --max-shard-size 6KB --force && ls v/unet && ckpt diff variant v
ckpt convert -q variant v --to hf --force --dtype f16 && ls v/unet
echo "-- quantized components become floats"
ckpt convert -q "$src" eight --to hf --quantize fp8-block:1x1 && cp -r pipe q && rm q/unet/* && cp eight/* q/unet && ckpt convert -q q qo --to hf && ckpt diff q qo --tol 1e-3 | tail -n 1
diff q/unet/config.json qo/unet/config.json | grep '"quant_method"'
sed -i 's/"fp8"/"hqq"/' q/unet/config.json && { ckpt convert -q q x --to hf --dtype bf16 || echo "status $?"; }
echo "-- no pipeline"
ckpt convert -q pipe pipe --to hf --dtype bf16 --force || echo "status $?"
ckpt convert -q pipe x --to hf --include 'unet/*' || echo "status $?"
echo 'unet/conv_in.* foo.*' >rules && { ckpt convert -q pipe x --to hf --rename rules || echo "status $?"; }
ckpt convert -q pipe x --to hf --config "$src" || echo "status $?"
ckpt convert -q pipe x --to hf --no-side-files || echo "status $?"
ckpt convert -q pipe x --to hf-bin || echo "status $?"
cp -r pipe linked && mv linked/model_index.json . && ln -s ../model_index.json linked && { ckpt convert -q linked x --to hf || echo "status $?"; }
rm linked/model_index.json && mv model_index.json linked && mv linked/scheduler . && ln -s ../scheduler linked && { ckpt convert -q linked x --to hf || echo "status $?"; }
rm linked/scheduler && mv scheduler linked && mv linked/vae . && ln -s ../vae linked && { ckpt convert -q linked x --to hf || echo "status $?"; }
ls -d x .x* x/.* 2>/dev/null
echo "-- two pipelines merged"
ckpt merge -q pipe:0.5 half:0.5 -o both --method linear && files both | head -n 2 && ckpt ls both | tail -n 1
ckpt verify -q both --made-from pipe:0.5 --made-from half:0.5 --method linear && echo "as made by this command"
