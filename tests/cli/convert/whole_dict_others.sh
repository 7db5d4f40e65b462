# SPDX-License-Identifier: Apache-2.0
# Tensors beside a model in one file, which belong to no part that ckpt knows, are named.
cat >make.py <<'EOP'
import os, sys
sys.path.insert(0, os.environ['FIXTURES'] + '/../cli')
from ds_tiny import filled, save

model = {'a.weight': filled((2, 2), 1.0), 'b.weight': filled((2,), 2.0)}
save({'state_dict': model, 'anchors': filled((3,), 3.0)}, 'one.pt')
save({'state_dict': model, 'anchors': filled((3,), 3.0), 'stats': [filled((1,), 4.0)]}, 'two.pt')
EOP
python3 make.py
for n in one two; do
    ckpt convert $n.pt $n.safetensors >/dev/null
    ckpt ls -q $n.safetensors
done
