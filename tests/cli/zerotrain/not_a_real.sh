# SPDX-License-Identifier: Apache-2.0
# What is not finite is no rate.
zerotrain --learning_rate nan
