# SPDX-License-Identifier: Apache-2.0
# A word for a number.
zerotrain --max-steps many
