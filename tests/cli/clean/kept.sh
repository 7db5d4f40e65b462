# SPDX-License-Identifier: Apache-2.0
# What may be in use stays.
mkdir -p out/.t4.ckpt-partial
echo data >out/.t4.ckpt-partial/a.pt
echo data >out/.model.pt.ckpt-0a1b2c.tmp
touch -d '3 hours ago' out/.model.pt.ckpt-0a1b2c.tmp out/.t4.ckpt-partial/a.pt out/.t4.ckpt-partial
echo data >out/.other.pt.ckpt-zzzzzz.tmp
touch -d '3 minutes ago' out/.other.pt.ckpt-zzzzzz.tmp
ckpt clean out; echo $?
ckpt clean -q --force out; echo $?
ls -A out
