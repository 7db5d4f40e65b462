# SPDX-License-Identifier: Apache-2.0
# The list of commands.
ckpt help
