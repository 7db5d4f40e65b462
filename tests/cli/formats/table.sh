# SPDX-License-Identifier: Apache-2.0
# The table of formats, and that of quantized weights.
ckpt formats | sed '/^models that/,$d'
