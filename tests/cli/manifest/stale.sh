# SPDX-License-Identifier: Apache-2.0
# A manifest describes one output: a conversion does not copy it, and removes the one of an output that it replaces.
ckpt convert "$FIXTURES/hf_bert_sharded" a --to hf --manifest -q
ckpt convert a b --to hf -q && ls b
ckpt convert a a.npz --manifest -q && ls
ckpt convert a a.npz --force --dtype f16 -q && ls
ckpt convert a b --to hf --force --manifest -q && ls b && ckpt verify -q b && echo fine
ckpt convert "$FIXTURES/hf_bert_sharded" b --to hf --force -q && ls b
# nothing is written: no manifest
ckpt convert a c --to hf --manifest --dry-run -q >/dev/null && ls -d c
ckpt convert a - --to npz --manifest | wc -c
