# SPDX-License-Identifier: Apache-2.0
# Bars as SVG: well formed, loading nothing, as long as the numbers say; names are escaped; nothing is replaced unasked.
show() {
    python3 - "$@" <<'END'
import re
import sys
import xml.dom.minidom

for path in sys.argv[1:]:
    text = open(path).read()
    doc = xml.dom.minidom.parseString(text)
    foreign = [x for x in re.findall(r'(?:href|src|url\()[^ >]*', text)]
    names = {x.tagName for x in doc.getElementsByTagName('*')}
    print(path, sorted(names), foreign)
    for g in doc.getElementsByTagName('g'):
        bars = [float(r.getAttribute('width')) for r in g.getElementsByTagName('rect')]
        print(' ', g.getElementsByTagName('title')[0].firstChild.data, *bars)
    print(doc.getElementsByTagName('text')[0].firstChild.data)
END
}
ckpt mem --params 1M --gpus 2 --nodes 2 --link 1 --node-link 0.5 --svg plain.svg | tail -n 1
ckpt mem --params 1M --gpus 4 --pipeline 2 --seq-length 8 --layers 4 --hidden 16 --heads 4 --accumulation 2 --dtype fp32 --json --svg deep.svg | grep -c schema
show plain.svg deep.svg
cp -r "$FIXTURES"/hf_bert_sharded '<b>&"'"'"
ckpt mem '<b>&"'"'" --svg name.svg | tail -n 1
show name.svg
ckpt mem --params 1M --svg plain.svg
cmp -s plain.svg name.svg || ckpt mem --params 2M --svg plain.svg -f | tail -n 1
ckpt mem --params 1M --force | tail -n 1
cp "$FIXTURES"/hf_trainer_llama_z3_bf16_w2/ckpt/model.safetensors own
ckpt mem own --svg own -f
cmp own "$FIXTURES"/hf_trainer_llama_z3_bf16_w2/ckpt/model.safetensors && ls
