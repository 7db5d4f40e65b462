# SPDX-License-Identifier: Apache-2.0
# An optimizer that names its parameters by number, in another order than the model has: --order says which order.
cat >make.py <<'EOP'
import os, sys
sys.path.insert(0, os.environ['FIXTURES'] + '/../cli')
from ds_tiny import filled, save, scalar

SIZE = {'wte.w': 2, 'h.0.w': 4, 'h.1.w': 4, 'ln.w': 3, 'head.w': 5}
MODEL = list(SIZE)


def run(path, *groups):
    state, params, n = {}, [], 0
    for names in groups:
        params.append(list(range(n, n + len(names))))
        for name in names:
            value = (MODEL.index(name) + 1) / 16
            state[n] = {'step': scalar(3.0), 'exp_avg': filled((SIZE[name],), value), 'exp_avg_sq': filled((SIZE[name],), value)}
            n += 1
    save({'model': {n: filled((SIZE[n],), 1.0) for n in MODEL},
          'optimizer': {'state': state, 'param_groups': [dict(lr=.1, betas=(.9, .999), eps=1e-8, weight_decay=.0, params=p)
                                                         for p in params]}}, path)


run('reversed.pt', MODEL[::-1])
run('swapped.pt', ['wte.w', 'h.1.w', 'h.0.w', 'ln.w', 'head.w'])  # its shapes are the model's
run('part.pt', ['h.1.w'])
run('groups.pt', ['h.1.w', 'h.0.w', 'wte.w'], ['ln.w', 'head.w'])
save({'model': {n: filled((SIZE[n],), 1.0) for n in MODEL},
      'optimizer': {'state': {}, 'param_groups': [dict(lr=.1, momentum=0, params=list(range(len(MODEL))))]}}, 'stateless.pt')
run('straddle.pt', ['h.1.w', 'wte.w'], ['h.0.w', 'ln.w', 'head.w'])
EOP
cat >show.py <<'EOP'
import json, struct, sys
with open(sys.argv[1], 'rb') as f:
    header = json.loads(f.read(struct.unpack('<Q', f.read(8))[0]))
    at = f.tell()
    for k in 'wte.w', 'h.0.w', 'h.1.w', 'ln.w', 'head.w':
        t = header.get('exp_avg/' + k)
        if t:
            f.seek(at + t['data_offsets'][0])
            print(k, '%g' % (16 * struct.unpack('<f', f.read(4))[0]), end='; ')
print()
EOP
python3 make.py
printf '%s\n' head.w ln.w h.1.w h.0.w wte.w >reversed.txt
printf '%s\n' wte.w h.1.w h.0.w '*' >swapped.txt
echo h.1.w >part.txt
printf '%s\n' h.1.w h.0.w wte.w ln.w head.w >groups.txt
printf '%s\n' h.1.w wte.w h.0.w ln.w head.w >straddle.txt
for name in reversed swapped part groups straddle; do
    echo "-- $name"
    ckpt reshard -q $name.pt $name.none --stage 1 --world 2 || echo "status $?"
    for to in zero fsdp-ranks; do
        stage=$([ $to = zero ] && echo --stage 1)
        # shellcheck disable=SC2086
        ckpt reshard -q $name.pt $name.$to --to $to $stage --world 2 --order $name.txt || { echo "status $?"; continue; }
        ckpt convert -q --with-optimizer $name.$to $name.$to.safetensors && python3 show.py $name.$to.safetensors
    done
done
echo "-- no state"
ckpt reshard stateless.pt taken --stage 1 --world 2 2>&1 | grep -c "assuming the model's order"
ckpt reshard stateless.pt given --stage 1 --world 2 --order reversed.txt 2>&1 | grep -c "assuming the model's order"
echo "-- a list that does not fit"
ckpt reshard -q reversed.pt x --stage 1 --world 2 --order swapped.txt
echo other >other.txt
ckpt reshard -q reversed.pt x --stage 1 --world 2 --order other.txt
echo "-- more names than the optimizer has, and two lines '*'"
ckpt reshard -q part.pt x --stage 1 --world 2 --order groups.txt
printf '%s\n' '*' h.1.w '*' >stars.txt
ckpt reshard -q swapped.pt x --stage 1 --world 2 --order stars.txt
