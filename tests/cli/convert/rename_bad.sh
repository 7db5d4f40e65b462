# SPDX-License-Identifier: Apache-2.0
# A rule of one word.
echo lonely >rules
ckpt convert -q --rename rules "$FIXTURES"/hf_bert_sharded m.safetensors
