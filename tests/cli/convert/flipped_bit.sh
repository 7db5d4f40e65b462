# SPDX-License-Identifier: Apache-2.0
# One changed byte among the masters: refused, and nothing is written.
cp -r "$FIXTURES"/z2_bf16_w2_aligned/ckpt run
chmod -R u+w run
line=$(ckpt ls -l --include heads.z-9.weight run | head -1)
echo "$line"
file=run/global_step4/$(echo "$line" | sed 's/.* in \([^ ]*\) .*/\1/')
printf 'Z' | dd of="$file" bs=1 seek="${line##* at }" conv=notrunc 2>/dev/null
ckpt convert -q run m.safetensors; echo $?; ls
