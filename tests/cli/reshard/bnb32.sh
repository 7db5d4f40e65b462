# SPDX-License-Identifier: Apache-2.0
# bitsandbytes' moments of 32 bits in a file of torch: not written as ZeRO, with the way out, which works.
python3 - "$FIXTURES/whole_dicts/tutorial.pt" <<'END'
import sys, zipfile

with zipfile.ZipFile(sys.argv[1]) as z:
    records = [(i.filename, z.read(i)) for i in z.infolist()]
with zipfile.ZipFile('bnb.pt', 'w') as z:
    for name, data in records:
        if name.endswith('/data.pkl'):
            for old, new in (b'exp_avg_sq', b'state2'), (b'exp_avg', b'state1'):
                old, new = (b'X' + len(s).to_bytes(4, 'little') + s for s in (old, new))
                assert old in data
                data = data.replace(old, new)
        z.writestr(name, data)
END
ckpt reshard -q bnb.pt out --to zero --stage 1 --world 2
echo "status $?"
for stage in 1 3; do
    ckpt reshard -q bnb.pt out$stage --to zero --stage $stage --world 2 --drop-optimizer && ckpt verify -q out$stage && echo "stage $stage written"
done
