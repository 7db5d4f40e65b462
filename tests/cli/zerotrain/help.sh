# SPDX-License-Identifier: Apache-2.0
# The list of options.
zerotrain --help >long
sed -n 1,7p long
sed -n '/^Exit status/,$p' long
zerotrain --model nowhere --help | cmp - long
