# SPDX-License-Identifier: Apache-2.0
# The largest layer of what?
ckpt mem --largest-layer 10
