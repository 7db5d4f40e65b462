# SPDX-License-Identifier: Apache-2.0
# A folder without a checkpoint.
mkdir empty
ckpt ls empty
