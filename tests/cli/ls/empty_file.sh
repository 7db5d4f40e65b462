# SPDX-License-Identifier: Apache-2.0
# A file of no bytes.
: >model.safetensors
ckpt ls model.safetensors
