# SPDX-License-Identifier: Apache-2.0
# A word for a number.
ckpt mem --params many
