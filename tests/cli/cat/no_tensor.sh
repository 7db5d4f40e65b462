# A tensor is needed.
ckpt cat "$FIXTURES"/safetensors_dtypes/model.safetensors
