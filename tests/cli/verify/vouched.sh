# SPDX-License-Identifier: Apache-2.0
# What checksums say about the values, in formats with and without them; each chunk of a .distcp file has one of its own.
for f in hf_bert_sharded dcp_hf_sharded_w2/ckpt gguf_bert/F16.gguf numpy_npz/plain.npz fsdp2_mp_w2/ckpt; do
    ckpt verify "$FIXTURES"/$f | sed -n '$p'
    ckpt verify --json "$FIXTURES"/$f >v.json
    python3 -c 'import json; d = json.load(open("v.json")); print(d["status"], d["checksums"], d["bytes_without_checksum"])'
done
cp -r "$FIXTURES"/fsdp2_mp_w2/ckpt run
chmod -R u+w run
python3 - <<'END'
import io, zipfile
raw = bytearray(open("run/__0_0.distcp", "rb").read())
first = zipfile.ZipFile(io.BytesIO(bytes(raw[:raw.find(b"PK\5\6") + 22])))
at = next(i.header_offset for i in first.infolist() if "/data/" in i.filename)
at += 30 + raw[at + 26] + 256 * raw[at + 27] + raw[at + 28] + 256 * raw[at + 29]
raw[at + 3] ^= 1
open("run/__0_0.distcp", "wb").write(raw)
END
ckpt verify run
