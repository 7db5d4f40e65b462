# SPDX-License-Identifier: Apache-2.0
# The list of options: asked for, and without any arguments.
zerotrain --help >long
sed -n 1,7p long
sed -n '/^Exit status/,$p' long
zerotrain >none
cmp long none
zerotrain --model nowhere --help | cmp - long
