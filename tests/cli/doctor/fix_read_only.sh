# SPDX-License-Identifier: Apache-2.0
# The folder cannot be written to: an error, and the old `latest`.
[ "$(id -u)" -eq 0 ] || { mkdir run && cp -r "$FIXTURES"/z1_bf16_w2_tags/ckpt/* run && chmod a-w run; }
[ -d run ] || { cp -r "$FIXTURES"/z1_bf16_w2_tags/ckpt run && chmod -R u+w run && rm run/latest && mkdir run/latest; }
ckpt doctor -q --fix-latest run >names 2>messages; echo $?
wc -l <names
sed 's/: [A-Z][a-z ]*$//' messages | grep -c 'run: .* `latest`'
