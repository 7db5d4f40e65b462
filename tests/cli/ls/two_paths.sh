# SPDX-License-Identifier: Apache-2.0
# One path only.
ckpt ls a b
