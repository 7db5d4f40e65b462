# SPDX-License-Identifier: Apache-2.0
# Two models have little in common.
ckpt diff "$FIXTURES"/safetensors_dtypes/model.safetensors "$FIXTURES"/hf_bert_sharded >out; echo $?
tail -1 out
