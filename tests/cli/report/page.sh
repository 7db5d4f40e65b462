# SPDX-License-Identifier: Apache-2.0
# A page of a run; it is there already, and is replaced when that is asked for.
cp -r "$FIXTURES"/z1_bf16_w2_tags/ckpt run
ckpt report run -o report.html | sed 's/: [0-9.]* KB;/: SIZE;/'
ckpt report run -o report.html; echo $?
ckpt report -q --force run -o report.html; echo $?
ls -A
head -c 15 report.html; echo
grep -c 'default-src .none.' report.html
