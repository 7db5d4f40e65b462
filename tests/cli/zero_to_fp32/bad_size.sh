# SPDX-License-Identifier: Apache-2.0
# A size that is none.
zero_to_fp32 a b --max_shard_size 5XB
