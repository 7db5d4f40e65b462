# SPDX-License-Identifier: Apache-2.0
# Archives that are somebody else's: what is said of them is true of NumPy's as of torch's.
python3 - <<'EOF'
import zipfile
for name, member, method in (('bzip2.npz', 'a.npy', zipfile.ZIP_BZIP2), ('other.zip', 'readme.txt', zipfile.ZIP_STORED)):
    with zipfile.ZipFile(name, 'w', method) as z:
        z.writestr(member, b'x' * 100)
EOF
ckpt ls bzip2.npz
ckpt ls other.zip
