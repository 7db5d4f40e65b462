# SPDX-License-Identifier: Apache-2.0
# A folder that is not there, and one that is none.
ckpt clean nowhere; echo $?
: >file
ckpt clean file; echo $?
