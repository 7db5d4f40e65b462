# SPDX-License-Identifier: Apache-2.0
# A full disk: exit 7, nothing left behind.
ulimit -f 1
ckpt convert -q "$FIXTURES"/hf_bert_sharded m.safetensors; echo $?; ls -A
