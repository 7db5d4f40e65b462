# SPDX-License-Identifier: Apache-2.0
# A command that is none.
ckpt consolidate x
