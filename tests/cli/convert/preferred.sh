# SPDX-License-Identifier: Apache-2.0
# What is written is what loaders take, or the run says why not.
f=$FIXTURES/z1_bf16_w2_tags/ckpt
ckpt convert -q "$f" old --to hf -t first
for to in "hf --max-shard-size 3KB" "hf-bin" "hf-bin --max-shard-size 3KB"; do
    cp -r old out
    ckpt convert -q "$f" out --to $to; echo $?
    ckpt diff -q old out && echo untouched
    ckpt convert -q -f "$f" out --to $to; echo $?
    ckpt info out | sed -n 2p
    ckpt diff -q old out >/dev/null; echo $?
    ls out
    rm -r out
done
# What is read stays, so what loaders would not take is not written beside it.
ckpt convert -q -f old old --to hf --max-shard-size 3KB; echo $?
ckpt convert -q -f old old --to hf-bin; echo $?
ls old
# The other way round loaders take the new one.
ckpt convert -q "$f" bin --to hf-bin
ckpt convert -q bin bin --to hf; echo $?
ls bin
