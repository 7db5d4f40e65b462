# SPDX-License-Identifier: Apache-2.0
# A flag with a value.
ckpt ls --json=1 x
