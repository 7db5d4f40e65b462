# SPDX-License-Identifier: Apache-2.0
# Long helps show the common options; --help=all shows each option once, under a heading.
ckpt convert --help=all
for v in convert mount reshard; do
    ckpt $v --help=all | sed -n 's/^  *\(-., \)\{0,1\}--\([a-z-]*\).*/\2/p' | sort >all
    uniq -d all
    [ "$(ckpt $v --help | sed -n 's/.*shows all \([0-9]*\) options.*/\1/p')" = "$(wc -l <all)" ] || echo "$v: not all options are shown"
done
ckpt convert --help=everything
ckpt ls --help=all
