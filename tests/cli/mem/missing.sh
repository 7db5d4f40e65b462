# SPDX-License-Identifier: Apache-2.0
# No such model.
ckpt mem nowhere
