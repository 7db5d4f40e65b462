# SPDX-License-Identifier: Apache-2.0
# The same as JSON, of a model.
ckpt mem --json --gpus 2 --nodes 2 --link 1 --node-link 0.5 --accumulation 3 "$FIXTURES"/hf_bert_sharded | sed -n '/"ranks"/,$p'
