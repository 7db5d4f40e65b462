# SPDX-License-Identifier: Apache-2.0
# State of bitsandbytes whose tensors do not fit each other is refused; state that is not Adam's keeps its weights readable.
cat >make.py <<'END'
import os, shutil, sys, zipfile

fixture, out, rank, old, new = sys.argv[1:]
old, new = old.encode().decode('unicode_escape').encode('latin1'), new.encode().decode('unicode_escape').encode('latin1')
shutil.copytree(fixture, out)
for r in '01' if rank == 'all' else rank:
    path = out + '/global_step3/bf16_zero_pp_rank_%s_mp_rank_00_optim_states.pt' % r
    os.chmod(path, 0o644)
    with zipfile.ZipFile(path) as z:
        records = [(i.filename, z.read(i)) for i in z.infolist()]
    with zipfile.ZipFile(path, 'w') as z:
        for name, data in records:
            if name.endswith('/data.pkl'):
                assert old in data, old
                data = data.replace(old, new)
            z.writestr(name, data)
END
make() {
    python3 make.py $FIXTURES/z2_bf16_w2_bnb8/ckpt "$@"
}
say() {
    ckpt verify -q $1
    echo "$1: verify $?"
    ckpt reshard -q --strict --moments fp32 $1 $1.out
    echo "$1: reshard $?"
    ckpt convert -q $1 $1.safetensors
    echo "$1: weights $?"
}
# 26 scales are 25; the table has 255 codes; a rank has other moments; only one moment; a key that is not known
make short 1 'K\x1a\x85' 'K\x19\x85' && say short
make table 0 'M\x00\x01\x85' 'M\xff\x00\x85' && say table
make rank 1 '__bnb_optimizer_quant_state__' '__bnb_optimizer_other_state__' && say rank
make lion all 'state2' 'stateX' && say lion
make absent all 'absmax2' 'absmaxX' && say absent
make norm all 'absmax2' 'max2xxx' && say norm
ckpt info norm | grep moments
ckpt reshard -q --strict --drop-optimizer -w 3 norm fresh
echo "without the optimizer: $?"
