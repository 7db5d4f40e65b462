# SPDX-License-Identifier: Apache-2.0
# A target is needed.
ckpt convert a
