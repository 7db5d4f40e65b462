#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A folder of a stranger that has a link to a program, under any of its names, and plugins of its own: their code never runs.
#
#   plugin.sh FOLDER_OF_PROGRAMS
set -u
bin=$(cd "$1" && pwd) || exit 2
work=$(mktemp -d) || exit 2
trap 'rm -rf "$work"' EXIT
failed=0
passed=0

cat >"$work/evil.c" <<'END'
#include <fcntl.h>
#include <stdlib.h>
__attribute__((constructor)) static void run(void)
{
    (void)open(getenv("EVIL"), O_WRONLY | O_CREAT, 0600);
}
END
"${CC:-cc}" -shared -fPIC -o "$work/evil.so" "$work/evil.c" || exit 2
mkdir -p "$work/a/run/ckpt" "$work/a/run/lib/ckpt" "$work/a/lib/ckpt" "$work/a/ckpt" "$work/mnt"
for plugin in remote mount mpi; do
    for place in run run/ckpt run/lib run/lib/ckpt lib lib/ckpt ckpt; do
        cp "$work/evil.so" "$work/a/$place/libckpt-$plugin.so"
        cp "$work/evil.so" "$work/a/$place/libzerotrain-cuda.so"
    done
done
for name in ckpt zero_to_fp32.py zero_to_torch ds_to_universal.py; do
    ln -s "$bin/ckpt" "$work/a/run/$name"
done
ln -s "$bin/zerotrain" "$work/a/run/zerotrain"
EVIL=$work/ran
export EVIL

# Without this the test would prove nothing.
CKPT_REMOTE_PLUGIN=$work/evil.so "$bin/ckpt" ls http://127.0.0.1:1/x >/dev/null 2>&1
[ -e "$work/ran" ] || {
    echo "FAILED: the planted plugin does not run where it is asked for"
    exit 1
}
rm "$work/ran"

# harmless FOLDER COMMAND...
harmless() {
    (cd "$work/a/$1" && shift && CKPT_REMOTE_RETRIES=0 CKPT_REMOTE_TIMEOUT=1 timeout 60 "$@" >"$work/said" 2>&1)
    if [ -e "$work/ran" ]; then
        rm "$work/ran"
        echo "FAILED: code of the folder ran: $*"
        failed=$((failed + 1))
    else
        passed=$((passed + 1))
    fi
}

for name in ckpt zero_to_fp32.py zero_to_torch; do
    verb=
    [ "$name" = ckpt ] && verb="ls"
    harmless run "./$name" $verb http://127.0.0.1:1/run "$work/out"
    harmless . "run/$name" $verb http://127.0.0.1:1/run "$work/out"
    harmless . "$work/a/run/$name" $verb http://127.0.0.1:1/run "$work/out"
done
harmless run ./ds_to_universal.py --input_folder http://127.0.0.1:1/run --output_folder "$work/out"
harmless run env CKPT_MPI=yes OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_RANK=0 timeout 5 ./ckpt ls .
harmless run ./ckpt mount . "$work/mnt" --to hf
harmless run ./zerotrain --device cuda --check
# a false name of the program, as a caller can give it
harmless run bash -c 'exec -a ./ckpt "$1/ckpt" ls http://127.0.0.1:1/run' bash "$bin"

# says TEXT COMMAND...: status 3, and what a user can do
says() {
    text=$1
    shift
    "$@" >"$work/said" 2>&1
    status=$?
    if [ $status -eq 3 ] && grep -q "$text" "$work/said"; then
        passed=$((passed + 1))
    else
        echo "FAILED: status $status, expected 3 and '$text': $(cat "$work/said")"
        failed=$((failed + 1))
    fi
}

mkdir "$work/alone" "$work/need"
cp "$bin/ckpt" "$work/alone/ckpt"
echo 'int ckpt_wire_table;' | "${CC:-cc}" -x c -shared -fPIC -o "$work/need/libneeded.so" -
"${CC:-cc}" -shared -fPIC -o "$work/needs.so" "$work/evil.c" -Wl,--no-as-needed -L"$work/need" -lneeded
says 'no libckpt-remote.so: install the Debian package of ckpt, or build' "$work/alone/ckpt" ls http://127.0.0.1:1/x
says 'libneeded.so: cannot open.*; install libcurl (Debian: libcurl4)' \
    env CKPT_REMOTE_PLUGIN="$work/needs.so" "$bin/ckpt" ls http://127.0.0.1:1/x
says '/nowhere.so: cannot open.*(CKPT_REMOTE_PLUGIN)' env CKPT_REMOTE_PLUGIN=/nowhere.so "$bin/ckpt" ls http://127.0.0.1:1/x
if [ -w /dev/fuse ]; then
    says 'no libckpt-mount.so: install the Debian package' "$work/alone/ckpt" mount "$work/a" "$work/mnt" --to hf
fi

echo "plugins: $passed passed, $failed failed"
[ "$failed" -eq 0 ]
