# SPDX-License-Identifier: Apache-2.0
# One shell is not another; what a shell makes of it is tried in man_options.sh.
for shell in bash zsh fish; do
    ckpt completion $shell | sed -n 1p
    zerotrain --completion $shell | sed -n 1p
done
ckpt completion tcsh
zerotrain --completion tcsh
ckpt completion
ckpt completion zsh | sed -n 's/^ *.--to\[\(.*\)\]:value:\(.*\). \\$/\1 \2/p'
