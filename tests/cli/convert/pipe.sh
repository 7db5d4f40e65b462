# SPDX-License-Identifier: Apache-2.0
# One file to standard output: the bytes of the file that is written else.
S=$FIXTURES/z3_bf16_w5_odd/ckpt
for to in safetensors torch:pt npz; do
    ckpt convert -q "$S" archive.${to##*:}
    ckpt convert "$S" - --to ${to%%:*} 2>said | cmp - archive.${to##*:} && echo "$to is the same"
    sed 's/ in .*s): /: /' said
done
ckpt convert -q "$S" archive.safetensors -f --dtype bf16 --include '*weight*'
ckpt convert -q "$S" - --to safetensors --dtype bf16 --include '*weight*' | cmp - archive.safetensors && echo same
# what cannot be, and what has no effect
for words in '' '--to hf' '--to safetensors --json' '--to npz --compress' '--to zero --stage 1'; do
    ckpt convert -q "$S" - $words; echo "$words: $?"
done
ckpt convert -q "$S" - --to safetensors --force --no-fsync | cmp - archive.safetensors | cut -c 1-10
ckpt convert "$S" - --to safetensors --dry-run | tail -2 | head -1
# nothing comes out of what is damaged before it is read
ckpt convert -q "$FIXTURES"/bad/ds/ds_missing_rank - --to safetensors | wc -c
ckpt convert -q "$FIXTURES"/bad/ds/ds_bitflip - --to safetensors >out; echo $?
# a reader that has gone ends it as it ends others
(sleep 0.3; ckpt convert -q "$S" - --to safetensors; echo "status $?" >&2) | true
