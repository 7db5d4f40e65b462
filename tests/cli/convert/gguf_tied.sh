# SPDX-License-Identifier: Apache-2.0
# A GGUF file without output.weight is taken for a tied model, with a note, unless its config.json or its keys contradict.
cat > edit.py <<'PY'
import json
import sys

# the configuration gets or loses tie_word_embeddings
folder, tie = sys.argv[1:]
with open(folder + '/config.json') as f:
    config = json.load(f)
config.pop('tie_word_embeddings')
if tie != 'none':
    config['tie_word_embeddings'] = tie == 'true'
with open(folder + '/config.json', 'w') as f:
    json.dump(config, f)
PY
cat > count.py <<'PY'
import struct, sys

# keys of a split in one file: the tensors of all files, and text that keeps the data aligned
with open(sys.argv[1], 'rb') as f:
    data = f.read()


def text(s):
    return struct.pack('<Q', len(s)) + s.encode()


more = text('split.tensors.count') + struct.pack('<Ii', 5, int(sys.argv[3]))
pad = text('test.pad') + struct.pack('<I', 8)
pad += text(' ' * (-(len(more) + len(pad) + 8) % 32))
with open(sys.argv[2], 'wb') as f:
    f.write(data[:16] + struct.pack('<Q', struct.unpack('<Q', data[16:24])[0] + 2) + more + pad + data[24:])
PY
cp -r "$FIXTURES"/gguf_llama_deep/hf in; chmod -R u+w in
python3 edit.py in true
# the head of this folder has its own values
ckpt convert -q in tied.gguf --exclude lm_head.weight && ckpt ls tied.gguf --include 'output*'
ckpt convert tied.gguf out --to hf 2>&1 | grep tie; grep tie out/config.json
echo '# the configuration says untied, or is of a class that is'
for tie in false none; do
    rm -rf beside out && mkdir beside && cp tied.gguf beside
    cp in/config.json beside && python3 edit.py beside $tie && cp beside/config.json $tie.json
    ckpt convert -q beside/tied.gguf out --to hf
    python3 edit.py in true
done
rm -rf out && ckpt convert -q tied.gguf out --to hf --config false.json
rm -rf out && ckpt convert -q tied.gguf out --to hf --config in/config.json && grep -o 'tie_word_embeddings": true' out/config.json
echo '# fewer tensors than the keys of a split say'
python3 count.py tied.gguf some.gguf 99 && rm -rf out && ckpt convert -q some.gguf out --to hf
ckpt verify some.gguf
python3 count.py tied.gguf all.gguf 83 && ckpt verify -q all.gguf
