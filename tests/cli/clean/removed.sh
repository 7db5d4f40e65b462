# SPDX-License-Identifier: Apache-2.0
# What is old goes, and nothing else.
mkdir -p out/.t4.ckpt-partial/zero
echo data >out/.model.pt.ckpt-0a1b2c.tmp
echo data >out/.t4.ckpt-partial/zero/fp32.pt
echo plan >out/.t4.ckpt-partial/journal
echo mine >out/model.pt
echo mine >out/.model.pt.tmp
touch -d '3 hours ago' out/.model.pt.ckpt-0a1b2c.tmp out/.t4.ckpt-partial/zero/fp32.pt out/.t4.ckpt-partial/zero \
    out/.t4.ckpt-partial/journal out/.t4.ckpt-partial
ckpt clean -n out; echo $?
ls -A out
ckpt clean out; echo $?
ls -A out
ckpt clean out; echo $?
