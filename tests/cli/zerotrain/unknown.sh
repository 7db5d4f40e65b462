# SPDX-License-Identifier: Apache-2.0
# An option that there is not.
zerotrain --no-such-option 1
