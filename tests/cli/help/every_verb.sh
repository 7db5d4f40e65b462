# SPDX-License-Identifier: Apache-2.0
# Every command has a help text that names it.
for v in ls info tree cat convert reshard verify diff doctor clean formats maps help version; do
    ckpt $v --help | head -1
done
