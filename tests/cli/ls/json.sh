# SPDX-License-Identifier: Apache-2.0
# JSON, and with it places of every piece.
ckpt ls --json --long --include 'float*' --exclude 'float8*' "$FIXTURES"/safetensors_dtypes/model.safetensors
