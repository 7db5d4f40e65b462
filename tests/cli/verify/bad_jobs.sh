# SPDX-License-Identifier: Apache-2.0
# Threads are counted from one.
ckpt verify -j 0 x
