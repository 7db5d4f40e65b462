# SPDX-License-Identifier: Apache-2.0
# A model folder is no ZeRO checkpoint.
zero_to_fp32 "$FIXTURES"/hf_bert_sharded out; echo $?; ls
