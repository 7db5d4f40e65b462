# SPDX-License-Identifier: Apache-2.0
# No fewer than none.
zerotrain --max-steps -2
