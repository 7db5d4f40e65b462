# SPDX-License-Identifier: Apache-2.0
# `latest` names nothing, and is repaired; then there is nothing to do.
cp -r "$FIXTURES"/z1_bf16_w2_tags/ckpt run
chmod -R u+w run
echo global_step9 >run/latest
ckpt doctor run; echo $?
ckpt doctor --fix-latest run; echo $?
cat run/latest; echo
ckpt doctor --fix-latest run; echo $?
rm run/latest
ckpt doctor --fix-latest -q run; echo $?
cat run/latest; echo
ls -A run
