# SPDX-License-Identifier: Apache-2.0
# Ranks of Megatron-LM whose optimizers counted other steps: every command refuses them, weights only too.
cp -r "$FIXTURES/mlegacy_gpt2_tp2_pp2/ckpt" run && chmod -R u+w run
cat >make.py <<'EOP'
import struct, sys, zipfile
# the step counts of one rank: storages of one F32, 3.0
path, values = sys.argv[1], [float(v) for v in sys.argv[2:]]
with zipfile.ZipFile(path) as z:
    records = [(i.filename, z.read(i)) for i in z.infolist()]
with zipfile.ZipFile(path, 'w') as z:
    for name, data in records:
        if data == struct.pack('<f', 3) and '/data/' in name:
            data = struct.pack('<f', values[0])
            values = values[1:] or values
        z.writestr(name, data)
EOP
last=run/iter_0000003/mp_rank_01_001/model_optim_rng.pt
python3 make.py $last 3 && ckpt verify -q run && echo "the same counts"
cp $last whole.pt
python3 make.py $last 8
ckpt verify -q run || echo "status $?"
for command in "convert run out --to hf" "reshard run out -s 1" "diff run run" "ls run" "doctor run" "convert run out.npz"; do
    ckpt $command >/dev/null || echo "status $?"
done
echo "-- one parameter of a rank counts less than the others: its weights are good"
cp whole.pt $last && python3 make.py $last 3 2 3
ckpt convert -q run good.npz && ckpt ls good.npz | tail -1
ckpt reshard run out -s 1 || echo "status $?"
