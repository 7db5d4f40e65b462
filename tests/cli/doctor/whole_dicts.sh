# SPDX-License-Identifier: Apache-2.0
# Whole dicts of a model and its optimizer, as accelerate leaves them with FULL_STATE_DICT, are a run's tags.
cat >make.py <<'EOF'
import pickle, sys, zipfile
for n in 10, 20:
    for name, tree in ('pytorch_model_fsdp', {}), ('optimizer', {'state': {}, 'param_groups': []}):
        with zipfile.ZipFile('run/checkpoint_%d/%s.bin' % (n, name), 'w') as z:
            z.writestr('archive/data.pkl', pickle.dumps(tree, 2))
            z.writestr('archive/version', '3\n')
EOF
mkdir -p run/checkpoint_10 run/checkpoint_20
python3 make.py
ckpt doctor run | sed 's/  *[0-9][0-9]* B/ N B/'
echo "status $?"
