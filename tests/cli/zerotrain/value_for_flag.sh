# SPDX-License-Identifier: Apache-2.0
# A flag takes no value.
zerotrain --quiet=yes
