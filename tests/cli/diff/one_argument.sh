# SPDX-License-Identifier: Apache-2.0
# Two are needed.
ckpt diff a
