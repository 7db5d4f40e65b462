# Every command has a help text that names it.
for v in ls info tree cat convert verify diff formats help version; do
    ckpt $v --help | head -1
done
