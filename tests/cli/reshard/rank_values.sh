# SPDX-License-Identifier: Apache-2.0
# Prodigy under ZeRO: each rank has its own d_numerator.  Weights need none of them; a new layout says whose are taken.
run=$FIXTURES/z1_bf16_w2_prodigy/ckpt
cat >edit.py <<'EOF'
import shutil, struct, sys, zipfile
source, target, key, how = sys.argv[1:]
shutil.copytree(source, target)
name = target + '/global_step3/bf16_zero_pp_rank_1_mp_rank_00_optim_states.pt'
with zipfile.ZipFile(source + '/global_step3/bf16_zero_pp_rank_1_mp_rank_00_optim_states.pt') as z:
    members = [(i.filename, z.read(i)) for i in z.infolist()]
with zipfile.ZipFile(name, 'w', zipfile.ZIP_STORED) as z:
    for member, data in members:
        if member.endswith('data.pkl'):
            at = data.index(b'X' + struct.pack('<I', len(key)) + key.encode() + b'q')
            if how == 'gone':  # under another name
                data = data[:at + 5] + b'_' + data[at + 6:]
            else:
                at = data.index(b'G', at)
                data = data[:at + 1] + struct.pack('>d', float(how)) + data[at + 9:]
        z.writestr(member, data)
EOF
python3 edit.py $run lr lr 0.5
python3 edit.py $run eps eps 0.25
python3 edit.py $run gone d_hat gone
ckpt convert -q --strict $run weights.safetensors
echo "weights: $?"
zero_to_fp32 -q $run weights.bin >out 2>&1 || cat out
ckpt doctor $run
ckpt reshard -q -w 3 $run w3
echo "reshard: $?"
ckpt reshard -q --strict -w 3 $run strict
echo "strict: $?"
for f in lr eps gone; do
    ckpt reshard -q -w 3 $f $f.w3
    echo "$f: $?"
done
# partitions that stay keep each rank's own, those that a rank lacks too
ckpt verify --strict $run >out
echo "verify --strict: $?"
ckpt reshard -q --strict $run same
echo "same: $?"
ckpt reshard -q --strict -s 2 gone gone.same
echo "gone: $?"
for f in same gone.same; do
    for r in 0 1; do
        ckpt tree $f/global_step3/bf16_zero_pp_rank_${r}_mp_rank_00_optim_states.pt | grep -e d_numerator -e _hat
    done
done
# another framework has other partitions
ckpt reshard -q --strict --to dcp $run dcp
echo "dcp: $?"
