# A file of no bytes.
: >model.safetensors
ckpt ls model.safetensors
