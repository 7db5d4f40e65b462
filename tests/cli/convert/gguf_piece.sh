# SPDX-License-Identifier: Apache-2.0
# A file of a split model is not taken for the whole one under another name; under their own names all of them are needed.
ckpt convert -q "$FIXTURES"/gguf_llama_deep/hf m.gguf --dtype f16 --max-shard-size 60KB 2>/dev/null || echo "split: $?"
ls | head -2
for verb in ls info verify 'convert --to safetensors'; do
    for n in 1 2; do
        cp m-0000$n-of-*.gguf piece.gguf
        set -- $verb
        ckpt "$@" piece.gguf $([ $1 = convert ] && echo out)
        echo "$verb of file $n: $?"
    done
done
mkdir folder
mv piece.gguf folder
ckpt verify folder
echo "folder: $?"
rm m-00002-of-*
ckpt verify m-00001-of-*.gguf
echo "a file is gone: $?"
# without the keys of the split, the number of blocks tells
python3 - <<'END'
import os
raw = open(os.environ["FIXTURES"] + "/gguf_llama_deep/Q4_0.gguf", "rb").read()
at = raw.index(b"llama.block_count") + len("llama.block_count") + 4
open("deeper.gguf", "wb").write(raw[:at] + bytes([raw[at] + 1]) + raw[at + 1:])
END
ckpt verify deeper.gguf
