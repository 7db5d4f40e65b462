# SPDX-License-Identifier: Apache-2.0
# Batch sizes that do not fit.
. "$FIXTURES"/../cli/zerotrain_help.inc
echo '{"train_batch_size": 16, "train_micro_batch_size_per_gpu": 3}' >ds.json
train --max-steps 1
