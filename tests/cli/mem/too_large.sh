# SPDX-License-Identifier: Apache-2.0
# Beyond what 64 bits count.
ckpt mem --params 18446744073709551615
