# SPDX-License-Identifier: Apache-2.0
# The last option lacks its value.
zerotrain --model
