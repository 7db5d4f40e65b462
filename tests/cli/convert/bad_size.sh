# SPDX-License-Identifier: Apache-2.0
# Sizes that are none.
for s in 5 999999 5Q '5 GB' 1.5 -1 0x10 5XB 1e9 99999999999TB; do
    ckpt convert a b --to hf --max-shard-size "$s"
done
