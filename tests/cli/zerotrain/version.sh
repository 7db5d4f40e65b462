# SPDX-License-Identifier: Apache-2.0
# The version, of the library linked.
zerotrain --version | sed 's/ [0-9.]*$/ X/'
[ "$(zerotrain --version | sed 's/.* //')" = "$(ckpt --version | sed 's/.* //')" ] || echo differs
