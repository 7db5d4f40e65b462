# SPDX-License-Identifier: Apache-2.0
# A JSON line for each update; a resumed run adds its own, another one does not replace them.
. "$FIXTURES"/../cli/zerotrain_help.inc
cat >check.py <<'EOF'
import json
lines = [json.loads(line) for line in open('m.jsonl')]
print('keys', *lines[0])
print('steps', *(m['step'] for m in lines))
for m in lines:
    assert list(m) == list(lines[0]), m
    assert 0 < m['loss'] < 3 and m['grad_norm'] > 0 and m['lr'] == 1e-3 and m['loss_scale'] == 1, m
    assert m['skipped'] is False and m['tokens'] > 0 and m['seconds'] > 0, m
EOF
train --quiet --max-steps 3 --metrics m.jsonl --save run
python3 check.py
train --quiet --max-steps 5 --metrics m.jsonl --load run
python3 check.py
train --quiet --max-steps 2 --metrics m.jsonl
echo "exit status $?"
python3 check.py
train --quiet --max-steps 5 --metrics m.jsonl --load run --module-only
echo "exit status $?"
: >empty
train --quiet --max-steps 2 --metrics empty && wc -l <empty
train --quiet --max-steps 2 --metrics m.jsonl --force
python3 check.py
for o in "--plot old.svg" "--predict old.svg --load run" "--save-weights old.svg"; do
    echo old >old.svg
    train --quiet --max-steps 1 $o
    echo "exit status $?"
    cat old.svg
    train --quiet --max-steps 1 $o --force
    echo old | cmp -s - old.svg || echo "replaced"
done
