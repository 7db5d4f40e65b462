# SPDX-License-Identifier: Apache-2.0
# A file that is no checkpoint.
echo hello >note.txt
ckpt ls note.txt
