# SPDX-License-Identifier: Apache-2.0
# No rules.
ckpt convert -q --rename rules "$FIXTURES"/hf_bert_sharded m.safetensors
