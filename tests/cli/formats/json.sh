# SPDX-License-Identifier: Apache-2.0
# JSON.
ckpt formats --json
