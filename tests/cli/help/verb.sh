# SPDX-License-Identifier: Apache-2.0
# The options of one command, by either way the same.
ckpt help convert >a
ckpt convert --help >b
cmp a b && cat a
