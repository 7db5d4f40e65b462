# SPDX-License-Identifier: Apache-2.0
# An option without its value.
ckpt ls x --include
