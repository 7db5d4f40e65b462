# Every dtype safetensors has.
ckpt ls "$FIXTURES"/safetensors_dtypes/model.safetensors
