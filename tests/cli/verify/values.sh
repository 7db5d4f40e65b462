# SPDX-License-Identifier: Apache-2.0
# What the optimizer keeps once for a group: a rank that has another value is said, and what has no known form; only that
# cannot be laid out anew.
python3 "$FIXTURES"/../cli/ds_tiny.py run values
ckpt verify run
ckpt ls -q --all run
ckpt reshard -q -w 3 -s 2 run out
echo "reshard: $?"
ckpt reshard -q -w 3 -s 2 --drop-optimizer run out
echo "reshard without the state: $?"
