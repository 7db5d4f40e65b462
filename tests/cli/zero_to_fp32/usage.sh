# SPDX-License-Identifier: Apache-2.0
# The second argument is needed.
zero_to_fp32 a
