# SPDX-License-Identifier: Apache-2.0
# An option that cannot do anything is an error where the target says so, a warning where the source does.
z=$FIXTURES/z1_bf16_w3_groups/ckpt
try() {
    echo "-- $*"
    ckpt convert -q "$@"
    echo "$?"
}
try "$z" m.pt --max-shard-size 1MB
try "$z" m.safetensors --no-side-files
try "$z" m.pt --to-tag x
try "$z" m.pt --drop-optimizer
try "$z" m.pt --keep-objects
try "$z" m.pt --drop-objects
try "$z" run --to universal --max-shard-size 1MB
try "$z" run --to zero --as-file
ls
try "$FIXTURES"/hf_bert_sharded/model-00001-of-00003.safetensors a.pt -t global_step4
ls
try "$FIXTURES"/hf_bert_sharded b.pt --with-optimizer --no-frozen --keep-slices --as-file --require-crc
echo '{}' >rules.json
try "$z" c.pt --slice-rules rules.json
try "$z" d.pt --include '*.bias' --include 'nothing*' --exclude '*.weight' --exclude 'no.*'
printf 'a* b*\nwte* x*\nwte.* y*\n' >rules
try "$z" e.pt --rename rules
ls
