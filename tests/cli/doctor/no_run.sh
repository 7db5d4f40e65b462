# SPDX-License-Identifier: Apache-2.0
# A run must be named.
ckpt doctor
