# SPDX-License-Identifier: Apache-2.0
# A file of values alone is no model: an empty output would pass for one.
cat >make.py <<'EOF'
import pickle, zipfile
with zipfile.ZipFile('values.pt', 'w') as z:
    z.writestr('values/data.pkl', pickle.dumps({'step': 3, 'name': 'run'}, 2))
    z.writestr('values/version', '3\n')
EOF
python3 make.py
ckpt convert values.pt model.safetensors || echo "status $?"
ls
