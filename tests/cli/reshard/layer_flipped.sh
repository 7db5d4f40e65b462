# SPDX-License-Identifier: Apache-2.0
# Files that are passed on as they are: every record of them is checked first.
cp -r "$FIXTURES"/pipe2_z1_w4_tied/ckpt run
chmod -R u+w run
tag=$(cat run/latest)
at=$(grep -abo data/0 "run/$tag/layer_02-model_states.pt" | head -n 1 | cut -d: -f1)
printf '\377' | dd of="run/$tag/layer_02-model_states.pt" bs=1 seek=$((at + 100)) conv=notrunc 2>/dev/null
ckpt reshard -q -w 2 run out
echo "status $?"
test -e out/latest && echo there
true
