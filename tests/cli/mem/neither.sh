# SPDX-License-Identifier: Apache-2.0
# Neither a model nor a number.
ckpt mem
