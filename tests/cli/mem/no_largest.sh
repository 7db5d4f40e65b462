# SPDX-License-Identifier: Apache-2.0
# Stage 3 gathers the largest layer; without its size JSON has stage 2 alone.
ckpt mem --json --params 1000 | grep '"stage"'
ckpt mem --params 1000 --stage 3
