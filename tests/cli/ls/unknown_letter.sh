# SPDX-License-Identifier: Apache-2.0
# A letter that does not exist.
ckpt ls -z x
