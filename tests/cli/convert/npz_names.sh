# SPDX-License-Identifier: Apache-2.0
# The array x is the member x.npy, which numpy.load gives for the name x.npy too.
cat >make.py <<'EOP'
import os, sys
sys.path.insert(0, os.environ['FIXTURES'] + '/../cli')
from ds_tiny import filled, save

save({'x': filled((2,), 1.0), 'x.npy': filled((2,), 5.0), 'y.npy': filled((2,), 3.0)}, 'names.pt')
EOP
python3 make.py
ckpt convert -q names.pt names.npz
echo "status $?"
ckpt convert -q names.pt names.npz --exclude x
ckpt ls -q names.npz
