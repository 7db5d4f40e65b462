# SPDX-License-Identifier: Apache-2.0
# JSON; another case has the architectures.
ckpt formats --json | sed '/gguf_architectures/,$d'
