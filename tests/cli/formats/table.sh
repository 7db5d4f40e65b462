# SPDX-License-Identifier: Apache-2.0
# The table of formats.
ckpt formats
