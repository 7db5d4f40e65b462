# SPDX-License-Identifier: Apache-2.0
# The program knows its maps without a file beside it, byte for byte those of the tree.
mkdir empty && cp "$CKPT/ckpt" empty/
for map in "$FIXTURES"/../../tools/share/maps/*.map; do
    name=${map##*/}
    empty/ckpt maps "$name" | sed 1d | cmp - "$map" && echo "$name"
done
