# SPDX-License-Identifier: Apache-2.0
# A full disk is an I/O error.
ckpt ls "$FIXTURES"/hf_bert_sharded >/dev/full
