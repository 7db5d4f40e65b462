# SPDX-License-Identifier: Apache-2.0
# A tolerance is a number.
for t in x -1 nan inf 0x1 1e999; do ckpt diff --tol=$t a b; done
