# SPDX-License-Identifier: Apache-2.0
# Options may follow the path, cut short.
ckpt ls "$FIXTURES"/hf_bert_sharded --qui --incl '*pooler*' --excl '*query*' --incl '*position*'
