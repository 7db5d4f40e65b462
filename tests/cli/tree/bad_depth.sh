# SPDX-License-Identifier: Apache-2.0
# A depth is a number.
ckpt tree --depth none x
