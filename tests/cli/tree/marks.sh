# SPDX-License-Identifier: Apache-2.0
# What a terminal would act on is shown by its code: in values, and in layout maps.
python3 - <<'END'
import pickle, zipfile
marks = '\x1b]0;t\x07 \x7f \x85 \x9b \u061c \u200b \u202e \u2028 \u2066 \ufeff \U000e0041 \u00e9'
with zipfile.ZipFile('m.pt', 'w') as z:
    z.writestr('m/data.pkl', pickle.dumps({'k' + marks: 'v' + marks, 1: [marks]}, 2))
    z.writestr('m/version', '3\n')
with open('e.map', 'w') as f:
    f.write('map evil%s:R\nabout x%s\ntensors\n\t{x...} = {x}\n' % ('\x1b', '\x1b[2J\x9b\u202e'))
with open('f.map', 'w') as f:
    f.write('# %s\nmap L:R\nabout plain\ntensors\n\t{x...} = {x}\n' % '\x1b[2J\r\u202e')
END
ckpt tree m.pt
ckpt tree --json m.pt
CKPT_MAPS=. ckpt maps | head -n 2
ckpt maps ./f.map
for of in 'tree m.pt' 'tree --json m.pt' 'maps ./e.map' 'maps ./f.map' maps; do
    CKPT_MAPS=. ckpt $of 2>&1
done | python3 -c 'import re, sys
print(re.findall("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b\u202e\u2028\u2066\ufeff\U000e0041]", sys.stdin.buffer.read().decode()))'
