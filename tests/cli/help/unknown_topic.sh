# SPDX-License-Identifier: Apache-2.0
# Help on a command that is none.
ckpt help consolidate
