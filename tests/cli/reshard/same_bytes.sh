# SPDX-License-Identifier: Apache-2.0
# The same bytes whatever the threads and buffers, and on the way back.
src=$FIXTURES/z3_bf16_w5_odd/ckpt
ckpt reshard -q -j 1 --memory 1MiB -w 3 -s 2 "$src" a
ckpt reshard -q -j 8 -w 3 -s 2 "$src" b
diff -r a b && echo same
ckpt reshard -q -w 2 -s 3 a c
ckpt reshard -q -w 3 -s 2 c d
for f in a/*/*optim*; do
    cmp "$f" "d/${f#a/}"
done
