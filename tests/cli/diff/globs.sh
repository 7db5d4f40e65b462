# SPDX-License-Identifier: Apache-2.0
# --include and --exclude: a warning only if a glob matches no name of either side.
dcp=$FIXTURES/dcp_plain_w2/ckpt
ckpt convert -q "$dcp" out.safetensors
ckpt convert -q "$dcp" less.safetensors --exclude 'b*'
try() {
    echo "-- $*" >&2
    ckpt diff "$@" 2>&1 >/dev/null | grep -v 'beside the model' >&2
}
try --exclude 'list.*' "$dcp" out.safetensors
try --exclude 'lisp.*' "$dcp" out.safetensors
try -q --exclude 'lisp.*' --exclude 'list.*' "$dcp" out.safetensors
try --exclude 'b*' "$dcp" less.safetensors
try --include '[!b]*' --exclude 'b*' "$dcp" less.safetensors
try --include '[!b]*' --include 'b*' "$dcp" less.safetensors
try --include 'b*' "$dcp" less.safetensors
two=$FIXTURES/whole_dicts/two.pt
try --include 'student.*' --include 'x*' "$two" "$two"
try --exclude 'teacher.*' --include 'student.*' "$two" "$two"
