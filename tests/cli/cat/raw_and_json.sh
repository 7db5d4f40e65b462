# Two ways at once.
ckpt cat --raw --json "$FIXTURES"/safetensors_dtypes/model.safetensors int16
