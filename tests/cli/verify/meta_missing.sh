# SPDX-License-Identifier: Apache-2.0
# A file of a tensor-parallel rank that was not copied: params.json says so, and without it the shapes do, in every command.
cp -r "$FIXTURES"/map_meta_llama2_s2/meta whole
cp -r whole half
chmod -R u+w half
rm half/consolidated.01.pth
for verb in 'ls' 'info' 'ls --keep-slices' 'verify -q' 'verify -q --keep-slices'; do
    ckpt $verb half
    echo "$verb: $?"
done
ckpt convert -q --map meta-llama:hf --to hf half model
echo "convert: $?"
ckpt diff whole half --keep-slices
echo "diff: $?"
rm half/params.json
ckpt verify -q half
echo "verify without params.json: $?"
rm -r half
cp -r whole half
chmod -R u+w half
sed -i 's/"n_layers": 2/"n_layers": 3/' half/params.json
ckpt verify -q half --keep-slices
sed -i 's/"dim": 24/"dim": 40/' half/params.json
ckpt verify -q half --keep-slices
echo '{' >half/params.json
ckpt verify half --keep-slices
ckpt verify -q whole --keep-slices
# slices that no rule joins are whole all the same
ckpt verify -q whole
echo "whole: $?"
ckpt ls whole
echo "ls whole: $?"
