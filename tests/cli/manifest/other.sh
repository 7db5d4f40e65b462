# SPDX-License-Identifier: Apache-2.0
# A manifest that does not list the files of the checkpoint vouches for nothing.
ckpt convert "$FIXTURES/hf_bert_sharded" a.safetensors -q && cp a.safetensors b.safetensors
ckpt manifest -q a.safetensors
ckpt verify b.safetensors --manifest a.safetensors.manifest.json
echo "$?"
echo '{"schema": "ckpt-manifest/1", "files": [], "tensors": []}' >none.json
ckpt verify b.safetensors --manifest none.json
# split files and one file share the name of the manifest
ckpt convert --map none a.safetensors m.gguf --max-shard-size 10KB --manifest -q
ckpt convert --map none a.safetensors m.gguf -q
ckpt verify m.gguf | tail -2
ckpt verify m-00001-of-*.gguf | tail -2
# nor does the manifest of a folder below, of another tag, or of a folder that does not list the file
ckpt convert "$FIXTURES/hf_bert_sharded" t --to hf -q && ckpt convert t t/checkpoint-5 --to hf --manifest -q
ckpt verify t
ckpt verify t --manifest t/checkpoint-5/ckpt-manifest.json | head -3
echo checkpoint-5 >t/latest && ckpt verify t
ckpt reshard "$FIXTURES/z1_bf16_w2_fp32acc/ckpt" run --to zero --manifest -q
cp -r run/global_step4 run/global_step5 && rm run/global_step5/ckpt-manifest.*
ckpt verify run --tag global_step5
ckpt verify run --tag global_step5 --manifest run/global_step4/ckpt-manifest.json | tail -2
ckpt diff --manifest t/checkpoint-5/no1 t/checkpoint-5/no2
cp a.safetensors t/checkpoint-5/new.safetensors
ckpt verify t/checkpoint-5/new.safetensors
ckpt diff --manifest t/checkpoint-5/new.safetensors t/checkpoint-5
ckpt diff --manifest none.json none.json
# the manifest of the original, kept beside a copy under the usual name
cp -r t/checkpoint-5 copy && rm copy/ckpt-manifest.* copy/new.safetensors && cp t/checkpoint-5/ckpt-manifest.json .
ckpt verify copy --manifest ckpt-manifest.json | tail -1
# with --made-from, --tag is that of the source, and not of the checkpoint with the manifest
ckpt convert --map none run parts.gguf --max-shard-size 2KB -q 2>/dev/null
rm -f parts.gguf.manifest.*
for n in parts-0000*.gguf; do
    python3 - "$n" <<'END'
import hashlib, json, sys
data = open(sys.argv[1], 'rb').read()
print(json.dumps({'schema': 'ckpt-manifest/1', 'files': [{'path': sys.argv[1], 'bytes': len(data), 'sha256': hashlib.sha256(data).hexdigest()}], 'tensors': []}))
END
    break
done >parts.gguf.manifest.json
ckpt verify parts-00001-of-*.gguf --made-from run --map none --tag global_step4 2>&1 | grep -c 'does not list'
