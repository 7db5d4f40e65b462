# Roles and places.
ckpt ls -l "$FIXTURES"/safetensors_dtypes/model.safetensors
