# SPDX-License-Identifier: Apache-2.0
# One table; without the size of the largest layer there is none of stage 3.
ckpt mem --params 124439808 --stage 2
ckpt mem --params 124439808
