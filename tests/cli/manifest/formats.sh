# SPDX-License-Identifier: Apache-2.0
# Every format: the hashes that a run takes while it writes are those of its files, and a flipped bit is found and named.
flip() { python3 -c 'import sys
with open(sys.argv[1], "r+b") as f:
    f.seek(int(sys.argv[2]), 2); b = f.read(1); f.seek(-1, 1); f.write(bytes([b[0] ^ 4]))' "$@"; }

# try OUT FILE WHERE: WHERE is counted from the end of the file
try() {
    found=$(find . -name '*manifest.json' -newer mark)
    ckpt manifest -q "$1" -o again.json && cmp again.json "$found"
    ckpt verify "$1" | sed 's/.*; //'
    flip "$2" "$3"
    ckpt verify "$1" >said
    echo "$?" && sed -n "s/^error: \(.*\): [a-z]* .*manifest: it was changed/  \1/p" said
    rm -rf "$1" "${found%.json}".*
}
touch mark
m=$FIXTURES/hf_bert_sharded
ckpt convert "$m" m.safetensors --manifest -q && try m.safetensors m.safetensors -1
ckpt convert "$m" m.pt --manifest -q && try m.pt m.pt -9000
ckpt convert "$m" m.npz --manifest -q && try m.npz m.npz -9000
ckpt convert "$m" z.npz --compress --manifest -q && try z.npz z.npz -9000
ckpt convert "$m" m.gguf --manifest -q 2>/dev/null && try m.gguf m.gguf -1
ckpt convert "$m" s.gguf --max-shard-size 10K --manifest -q 2>/dev/null && try s-00002-of-00004.gguf s-00003-of-00004.gguf -1
ckpt convert "$m" hf --to hf --max-shard-size 12K --manifest -q && try hf "$(ls hf/model-00002-*)" -1
ckpt convert "$m" bin --to hf-bin --manifest -q && try bin bin/pytorch_model.bin -9000
ckpt convert "$m" sharded --to hf-sharded --manifest -q 2>/dev/null && try sharded sharded/shard-00001-model-00001-of-00001.safetensors -1
ckpt convert "$m" dcp --to dcp --manifest -q && try dcp dcp/checkpoint/__0_0.distcp -900
