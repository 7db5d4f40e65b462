# SPDX-License-Identifier: Apache-2.0
# The resolved configuration: JSON that, read again, resolves to itself.
. "$FIXTURES"/../cli/zerotrain_help.inc
zerotrain --deepspeed_config "$S"/ds_config.json --model "$S" --print-config >one
zerotrain --deepspeed_config one --model "$S" --print-config >two
cmp one two
python3 -m json.tool one >/dev/null
grep -A 3 -e train_batch_size -e '"zero_optimization"' one
