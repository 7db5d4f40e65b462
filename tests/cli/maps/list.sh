# SPDX-License-Identifier: Apache-2.0
# The maps there are, and one as text.
ckpt maps
ckpt maps hf-torchtitan-halves.map | head -5
ckpt maps martian; echo $?
