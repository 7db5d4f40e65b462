# SPDX-License-Identifier: Apache-2.0
# Directions, ends of lines, characters without width and C1 controls in a name reach no terminal, also in JSON.
# U+202E, U+2028, U+009B, U+200B, U+E0041; then letters that stay: e acute and an emoji
name='a\342\200\256b\342\200\250c\302\233d\342\200\213e\363\240\201\201f\303\251\360\237\230\200'
header="{\"$(printf "$name")\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}"
n=$(printf '%s' "$header" | wc -c)
{ printf "\\$(printf %o "$n")\0\0\0\0\0\0\0"; printf '%s' "$header"; printf 'x'; } >t.safetensors
ckpt ls t.safetensors
ckpt ls --json t.safetensors | grep '"name"'
ckpt cat t.safetensors "$(printf "$name")" --json | grep '"name"'
# what is not UTF-8 in a path is shown byte by byte
ckpt info "$(printf 'no\233where')"
