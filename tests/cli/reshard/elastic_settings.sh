# SPDX-License-Identifier: Apache-2.0
# Elastic checkpoints keep no settings of their groups: every target has those that ds_config says, not ZeRO alone.
src=$FIXTURES/z1_fp16_w3_elastic/ckpt
cat >show.py <<'EOP'
import glob, struct, sys
found = set()
for path in glob.glob(sys.argv[1] + '/**', recursive=True) + glob.glob(sys.argv[1] + '/*/.metadata'):
    try:
        data = open(path, 'rb').read()
    except IsADirectoryError:
        continue
    found |= {n for n in ('lr', 'betas', 'eps', 'weight_decay', 'amsgrad') if b'param_groups' in data and n.encode() in data}
    found |= {str(x) for x in (.003, .97, 1e-6, .02) if b'G' + struct.pack('>d', x) in data}
print(*sorted(found))
EOP
for to in dcp fsdp-ranks universal; do
    world=$([ $to = universal ] || echo "--world 2")
    ckpt reshard -q "$src" $to --to $to $world
    echo "$to: $?"
    python3 show.py $to
done
echo "-- without a configuration (0.3.16) those of Adam, which a warning says"
ckpt reshard -q "$FIXTURES/old0316_z1_fp16_w2/ckpt" old --to dcp --world 2
python3 show.py old
