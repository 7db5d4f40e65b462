# SPDX-License-Identifier: Apache-2.0
# Two tensors, one name.
echo '* same' >rules
ckpt convert -q --rename rules "$FIXTURES"/hf_bert_sharded m.safetensors; echo $?; ls
