# SPDX-License-Identifier: Apache-2.0
# SIGTERM: the process dies of it, after removing what it had begun.
# 600 MB of zeros, sparse: long enough to be caught in the middle on any machine
python3 - <<'END'
n = 150_000_000
header = ('{"w":{"dtype":"F32","shape":[%d],"data_offsets":[0,%d]}}' % (n, 4 * n)).encode()
with open("big.safetensors", "wb") as f:
    f.write(len(header).to_bytes(8, "little") + header)
    f.truncate(8 + len(header) + 4 * n)
END
mkdir out
# the shell's own word on the death of a child is none of ours
exec 2>/dev/null
ckpt convert -q -j 1 --memory 1MiB big.safetensors out/m.pt 2>messages &
pid=$!
# as soon as it writes
while [ -z "$(ls -A out)" ] && kill -0 $pid; do sleep 0.01; done
kill -TERM $pid
wait $pid
echo $?
cat messages
ls -A out
