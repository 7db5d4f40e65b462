# SPDX-License-Identifier: Apache-2.0
# A setting of DeepSpeed that is not for this engine is refused by name.
. "$FIXTURES"/../cli/zerotrain_help.inc
echo '{"train_batch_size": 16, "zero_optimization": {"stage": 4}}' >ds.json
train --max-steps 1
