# SPDX-License-Identifier: Apache-2.0
# A run continues from the weights that its optimizer trains: not from an average, nor from rounded weights.
dicts=$FIXTURES/whole_dicts
ckpt reshard --no-fsync --stage 2 --world 1 "$dicts/averaging.ckpt" zero | sed 's/ in .*//'
ckpt diff zero "$dicts/trained.pt"
ckpt reshard -q --no-fsync --to dcp "$dicts/averaging.ckpt" dcp && ckpt reshard -q --no-fsync --stage 2 --world 1 dcp again &&
    ckpt diff again "$dicts/trained.pt"
ckpt reshard --no-fsync --stage 2 --world 1 "$dicts/ema.pt" copies | sed 's/ in .*//'
for f in mmengine.pth average.pt masters.pt masters_list.pt masters_apex.pt masters_state.pt shadow.pt; do
    ckpt reshard -q --no-fsync --stage 2 --world 1 "$dicts/$f" "${f%.*}"
    echo "$f: status $?"
done
ls
