# SPDX-License-Identifier: Apache-2.0
# A path is needed.
ckpt ls
