# SPDX-License-Identifier: Apache-2.0
# A path that does not exist.
ckpt tree nowhere
