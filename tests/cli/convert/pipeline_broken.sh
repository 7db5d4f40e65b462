# SPDX-License-Identifier: Apache-2.0
# Pipelines of diffusers that no program could load are refused, and links in the output are not followed.
src=$FIXTURES/diffusers
mkdir -p pipe/scheduler && cp -r "$src" pipe/unet && echo '{"a": 1}' >pipe/scheduler/scheduler_config.json
echo '{"_class_name": "TestPipeline", "unet": ["diffusers", "UNet2DModel"], "scheduler": ["diffusers", "DDPMScheduler"]}' >pipe/model_index.json
refuse() {
    echo "-- $1"
    shift
    ckpt convert -q "$@" || echo "status $?"
}
cp -r pipe bare && rm bare/unet/config.json && refuse "a model without config.json" bare x --to hf
cp -r pipe linked && mv linked/scheduler/scheduler_config.json . && ln -s ../../scheduler_config.json linked/scheduler
refuse "a component whose only file is a link out of the folder" linked x --to hf
cp -r pipe empty && rm empty/scheduler/* && refuse "an empty folder" empty x --to hf
mkdir out elsewhere && cp "$src"/* elsewhere && ln -s ../elsewhere out/unet && refuse "a link in the output" pipe out --to hf --force
ls -d x out/* 2>/dev/null; ls elsewhere && cmp "$src/diffusion_pytorch_model.safetensors" elsewhere/diffusion_pytorch_model.safetensors
