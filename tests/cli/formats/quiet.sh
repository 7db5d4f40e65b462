# SPDX-License-Identifier: Apache-2.0
# Names.
ckpt formats -q
