# SPDX-License-Identifier: Apache-2.0
# Prefixes of wrappers go; names that are the model's own stay.
truth=$FIXTURES/whole_dicts/truth.pt
for f in per_layer ddp base tied clash; do
    ckpt convert --no-fsync "$FIXTURES/whole_dicts/$f.pt" $f.safetensors | sed 's/ in .*//'
    ckpt ls $f.safetensors | head -n 2
done
ckpt diff per_layer.safetensors "$truth"
# both sides of a comparison are taken without them
ckpt diff "$FIXTURES/whole_dicts/per_layer.pt" "$truth"
ckpt diff --keep-names "$FIXTURES/whole_dicts/per_layer.pt" "$truth" | tail -n 1
ckpt convert -q --no-fsync --strict "$FIXTURES/whole_dicts/clash.pt" strict.safetensors
echo "status $?"
# names that are kept
ckpt convert -q --no-fsync --keep-names "$FIXTURES/whole_dicts/lightning.ckpt" kept.safetensors && ckpt ls kept.safetensors | head -n 2
ckpt convert -q --no-fsync --keep-names "$truth" none.safetensors
# merged with a model that has none
ckpt merge -q --no-fsync -o mean.safetensors "$FIXTURES/whole_dicts/per_layer.pt" "$truth" && ckpt diff mean.safetensors "$truth"
# a configuration of another model: programs would find nothing
ckpt convert -q --no-fsync --to hf --config "$FIXTURES/whole_dicts/config.json" "$FIXTURES/whole_dicts/gan.ckpt" gan
ckpt convert -q --no-fsync --strict --to hf --config "$FIXTURES/whole_dicts/config.json" "$FIXTURES/whole_dicts/gan.ckpt" gan2
echo "status $?"
# models side by side in one dict: the message says how to take one
ckpt convert -q --no-fsync --to hf --config "$FIXTURES/whole_dicts/config.json" "$FIXTURES/whole_dicts/parts.pt" parts
ckpt convert -q --no-fsync --to hf --config "$FIXTURES/whole_dicts/config.json" --include '*student.*' "$FIXTURES/whole_dicts/parts.pt" student && ckpt diff student "$truth"
ls
