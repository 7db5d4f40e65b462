# SPDX-License-Identifier: Apache-2.0
# A journal that a process has locked.
mkdir -p out/.t4.ckpt-partial
echo plan >out/.t4.ckpt-partial/journal
touch -d '3 hours ago' out/.t4.ckpt-partial/journal out/.t4.ckpt-partial
python3 -c 'import fcntl, subprocess
f = open("out/.t4.ckpt-partial/journal")
fcntl.flock(f, fcntl.LOCK_EX)
print(subprocess.call(["ckpt", "clean", "-f", "out"]))'
ls -A out
