# SPDX-License-Identifier: Apache-2.0
# SIGTERM while an archive is deflated: it removes both forms; killed, the same command goes on from the stored one.
python3 - <<'END'
n = 60_000_000
header = ('{"w":{"dtype":"F32","shape":[%d],"data_offsets":[0,%d]}}' % (n, 4 * n)).encode()
with open("big.safetensors", "wb") as f:
    f.write(len(header).to_bytes(8, "little") + header)
    f.truncate(8 + len(header) + 4 * n)
END
# the shell's own word on the death of a child is none of ours
exec 2>/dev/null
stop() {
    ckpt convert -q --no-fsync --compress big.safetensors a.npz 2>messages &
    pid=$!
    while [ ! -s .a.npz.ckpt-partial/new/.packing ] && kill -0 $pid; do sleep 0.01; done
    kill -"$1" $pid
    wait $pid
    echo $?
    cat messages
    ls -A
}
stop TERM
stop KILL
ckpt convert --no-fsync --compress big.safetensors a.npz | sed 's/ in .*//'
ckpt verify a.npz | sed 's/:.*//'
ls -A
