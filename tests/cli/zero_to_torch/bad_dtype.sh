# SPDX-License-Identifier: Apache-2.0
# Only three dtypes, as the script has it.
zero_to_torch a b --dtype fp64; zero_to_torch a b --dtype int4
