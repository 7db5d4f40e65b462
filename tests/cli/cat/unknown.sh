# SPDX-License-Identifier: Apache-2.0
# A name that is nearly one.
ckpt cat "$FIXTURES"/hf_bert_sharded pooler
ckpt cat "$FIXTURES"/safetensors_dtypes/model.safetensors int6
