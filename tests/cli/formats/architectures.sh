# SPDX-License-Identifier: Apache-2.0
# Architectures come from the layout maps: those linked in, and those of CKPT_MAPS.
mkdir maps
cat > maps/own.map <<'MAP'
map hf:gguf
left when model_type in mine other
right when general.architecture in mine
a = b
MAP
cat > maps/any.map <<'MAP'
map hf:gguf
a = b
MAP
CKPT_MAPS=maps ckpt formats | sed -n '/^models/,$p' | grep -e ^models -e '^mine' -e '^llama ' -e '^gemma3 '
CKPT_MAPS=maps ckpt formats --json | sed -n '/gguf_architectures/,/own.map/p'
echo "# as many as there are maps"
ckpt formats | sed '1,/^models/d' | grep -c . >formats && ckpt maps | grep -c '^hf:gguf ' | diff - formats && echo equal
