# SPDX-License-Identifier: Apache-2.0
# The model of a whole dict, under its own names; everything else is named as left behind.
for f in lightning.ckpt tutorial.pt ema.pt among.pt nested.pt; do
    echo "$f"
    ckpt convert -q --no-fsync --to hf --config "$FIXTURES/whole_dicts/config.json" "$FIXTURES/whole_dicts/$f" "${f%.*}" || exit
    ckpt diff "${f%.*}" "$FIXTURES/whole_dicts/truth.pt" || exit
    ls "${f%.*}"
done
ckpt convert --no-fsync "$FIXTURES/whole_dicts/ema.pt" ema.safetensors | sed 's/ in .*//'
# a copy of the model is taken where it is asked for
ckpt convert -q --no-fsync --include 'model_ema.*' "$FIXTURES/whole_dicts/ema.pt" copy.safetensors &&
    ckpt diff -q copy.safetensors "$FIXTURES/whole_dicts/truth.pt" | head -n 2
# moments go along under the names of their parameters
ckpt convert -q --no-fsync --with-optimizer "$FIXTURES/whole_dicts/tutorial.pt" all.safetensors && ckpt ls all.safetensors | head -n 3
# two optimizers do no harm to the model; several models have to be chosen from
ckpt convert -q --no-fsync "$FIXTURES/whole_dicts/gan.ckpt" gan.safetensors && ckpt ls gan.safetensors
for f in two.pt loose.pt; do
    ckpt convert -q --no-fsync "$FIXTURES/whole_dicts/$f" refused.safetensors
    echo "status $?"
done
ckpt convert -q --no-fsync --include 'student.*' "$FIXTURES/whole_dicts/two.pt" student.safetensors &&
    ckpt diff student.safetensors "$FIXTURES/whole_dicts/truth.pt"
ckpt convert -q --no-fsync --include 'generator.*' "$FIXTURES/whole_dicts/loose.pt" g.safetensors && ckpt ls g.safetensors
# the one file of a model folder
mkdir folder && cp "$FIXTURES/whole_dicts/config.json" folder && cp "$FIXTURES/whole_dicts/tutorial.pt" folder/pytorch_model.bin
ckpt convert --no-fsync --to hf folder plain | sed 's/ in .*//'
ckpt diff plain "$FIXTURES/whole_dicts/truth.pt"
ckpt reshard -q --no-fsync --stage 1 --world 1 folder run
echo "status $?"
ckpt reshard -q --no-fsync --stage 1 --world 1 folder/pytorch_model.bin run && ckpt diff --with-optimizer run "$FIXTURES/whole_dicts/tutorial.pt"
# a pickled module is no dict of weights: its optimizer does not become part of the model
ckpt convert -q --no-fsync "$FIXTURES/whole_dicts/pickled.pt" pickled.safetensors
echo "status $?"
ckpt merge -q --no-fsync -o pickled.safetensors "$FIXTURES/whole_dicts/pickled.pt" "$FIXTURES/whole_dicts/pickled.pt"
echo "status $?"
ckpt convert -q --no-fsync --exclude 'optimizer.*' "$FIXTURES/whole_dicts/pickled.pt" pickled.safetensors && ckpt ls pickled.safetensors
