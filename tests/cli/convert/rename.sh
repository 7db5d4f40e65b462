# SPDX-License-Identifier: Apache-2.0
# Rules for names.
printf '# drop the prefix\nbert.encoder.layer.* layer.*\nbert.* *\n' >rules
ckpt convert -q --rename rules "$FIXTURES"/hf_bert_sharded m.safetensors
ckpt ls -q m.safetensors
