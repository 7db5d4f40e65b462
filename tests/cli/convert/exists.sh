# SPDX-License-Identifier: Apache-2.0
# An output is only replaced on request.
echo precious >m.safetensors
ckpt convert -q "$FIXTURES"/z3_bf16_w5_odd/ckpt m.safetensors; echo $?
cat m.safetensors
ckpt convert -q --force "$FIXTURES"/z3_bf16_w5_odd/ckpt m.safetensors; echo $?
ckpt ls -q m.safetensors | wc -l
# a link to a folder is not replaced by a file, whatever is said
mkdir folder
ln -s folder link
for more in --no-sandbox --quiet; do
    ckpt convert -q --force $more "$FIXTURES"/z3_bf16_w5_odd/ckpt link --to safetensors; echo $?
done
readlink link
