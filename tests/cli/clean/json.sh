# SPDX-License-Identifier: Apache-2.0
# JSON.
mkdir out
echo data >out/.model.pt.ckpt-0a1b2c.tmp
touch -d '3 hours ago' out/.model.pt.ckpt-0a1b2c.tmp
ckpt clean --json out | sed 's/"age_seconds": [0-9]*/"age_seconds": N/'
