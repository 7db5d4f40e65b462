# SPDX-License-Identifier: Apache-2.0
# A whole dict is a run where it has one model and its one optimizer; else it says what it found.
for f in lightning.ckpt tutorial.pt ema.pt among.pt nested.pt; do
    ckpt reshard -q --no-fsync --stage 2 --world 2 "$FIXTURES/whole_dicts/$f" "${f%.*}" &&
        ckpt diff --with-optimizer "$FIXTURES/whole_dicts/$f" "${f%.*}" &&
        ckpt diff "${f%.*}" "$FIXTURES/whole_dicts/truth.pt"
done
for f in gan.ckpt two.pt loose.pt; do
    ckpt reshard -q --no-fsync --stage 2 --world 2 "$FIXTURES/whole_dicts/$f" refused
    echo "status $?"
done
ckpt diff --with-optimizer "$FIXTURES/whole_dicts/gan.ckpt" "$FIXTURES/whole_dicts/gan.ckpt"
ls
