# SPDX-License-Identifier: Apache-2.0
# There are no estimators of stage 1.
ckpt mem --params 10 --stage 1
