# SPDX-License-Identifier: Apache-2.0
# It takes none.
ckpt formats torch
