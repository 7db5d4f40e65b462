# SPDX-License-Identifier: Apache-2.0
# The program knows its maps without a file beside it, byte for byte those of the tree.
mkdir empty && cp "$CKPT/ckpt" empty/
n=0
for map in "$FIXTURES"/../../tools/share/maps/*.map; do
    name=${map##*/}
    empty/ckpt maps "$name" | sed 1d | cmp - "$map" && n=$((n + 1))
done
[ "$n" -gt 16 ] && echo "each map is that of the tree"
