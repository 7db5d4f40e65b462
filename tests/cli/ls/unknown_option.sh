# SPDX-License-Identifier: Apache-2.0
# An option that does not exist.
ckpt ls --colour x
