#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Code that a checkpoint smuggled in could do no harm: plant.so tries, at the first byte that each command reads of it.
#
#   run.sh FOLDER_OF_PROGRAMS PLANT_SO FIXTURES
#
# With --no-sandbox the same misdeeds must succeed, or they would prove nothing.
set -u
bin=$(cd "$1" && pwd) || exit 2
plant=$(cd "$(dirname "$2")" && pwd)/$(basename "$2")
fixtures=$(cd "$3" && pwd) || exit 2
force=$("$bin/ckpt" version | sed -n 's/^sandbox: //p')
work=$(mktemp -d) || exit 2
trap 'rm -rf "$work"' EXIT
PATH=$bin:$PATH
passed=0
failed=0

misdeeds=
case "$force" in *Landlock*) misdeeds="write read" ;; esac
case "$force" in *seccomp\)*)
    misdeeds="$misdeeds exec trace internet unix signal chmod fchmodat fchmod chown lchown fchown utime utimensat futimens"
    misdeeds="$misdeeds setxattr removexattr setflags truncate watch limit affinity group ioprio owner owner-signal clone3 clone3-enosys"
    ;;
esac
# not every machine allows these, and some kernels have no x32: refused in a sandbox, whatever happens without one
everywhere=
case "$force" in *seccomp\)*) everywhere="clone-user clone3-user x32 own-limit-fails own-affinity-fails" ;; esac
[ "$(uname -m)" = x86_64 ] || everywhere=$(echo "$everywhere" | sed 's/ x32//')
if [ -z "$misdeeds" ]; then
    echo "skipped: sandbox: $force"
    exit 0
fi

# tried COMMAND...: its misdeeds and their outcomes are in $work/log
tried() {
    rm -rf "$work/log" "$work/elsewhere" "$work/out"
    mkdir "$work/elsewhere" "$work/out"
    echo secret >"$work/elsewhere/secret"
    (cd "$work" && LD_PRELOAD=$plant PLANT_LOG=$work/log PLANT_SOURCE=$work/source PLANT_ELSEWHERE=$work/elsewhere \
        PLANT_SECRET=$work/elsewhere/secret PLANT_BESIDE=$work/out "$@" >"$work/printed" 2>&1)
}

# harmless MISDEEDS COMMAND...
harmless() {
    wrong=
    deeds=$1
    shift
    tried "$@" || wrong="ended with status $?: $(tail -n 1 "$work/printed")"
    for deed in $deeds $everywhere; do
        grep -qx "$deed refused" "$work/log" || wrong="$wrong $deed: $(grep "^$deed" "$work/log" || echo 'not tried')"
    done
    tried "$@" --no-sandbox || wrong="$wrong --no-sandbox ended with status $?"
    for deed in $deeds; do
        grep -qx "$deed done" "$work/log" || wrong="$wrong $deed with --no-sandbox: $(grep "^$deed" "$work/log" || echo 'not tried')"
    done
    if [ -n "$wrong" ]; then
        echo "FAILED $*:$wrong"
        failed=$((failed + 1))
    else
        passed=$((passed + 1))
    fi
}

mkdir "$work/source"
cp -R "$fixtures/z1_bf16_w3_groups/ckpt" "$work/source/run"
cp -R "$fixtures/hf_bert_sharded" "$work/source/model"
run=source/run
file=$(cd "$work" && ls source/model/*.safetensors | head -n 1)
name=$(ckpt ls -q "$work/$run" | head -n 1)
readers=$misdeeds
case "$force" in *Landlock*) readers="$misdeeds change" ;; esac

harmless "$readers" ckpt ls "$run"
harmless "$readers" ckpt info "$file"
harmless "$readers" ckpt tree "$run"
harmless "$readers" ckpt cat "$run" "$name"
harmless "$readers" ckpt verify "$run"
harmless "$readers" ckpt diff "$run" "$run"
harmless "$readers" ckpt doctor "$run"
harmless "$readers" ckpt mem source/model
harmless "$readers" ckpt convert "$run" out/new/model.safetensors
harmless "$readers" ckpt convert --to hf source/model out/new/folder
harmless "$readers" ckpt convert --dry-run --to hf source/model out/new/folder
harmless "$readers" ckpt reshard -w 2 "$run" out/run
harmless "$readers" zero_to_fp32 "$run" out/folder
harmless "$readers" zero_to_torch --dtype bf16 "$run" out/folder
harmless "$readers" ds_to_universal --input_folder "$run/global_step4" --output_folder out/universal
# merges: of the command line's models, of a configuration's; beside their output nothing is written
harmless "$readers write-beside" ckpt merge source/model source/model -o out/merged
harmless "$readers" ckpt merge source/model source/model -o out/merged.safetensors
printf 'models:\n  - model: source/model\n    parameters: {weight: 0.5}\n  - model: source/model\n    parameters: {weight: 0.5}\nmerge_method: linear\n' >"$work/merge.yml"
harmless "$readers write-beside" ckpt merge --config merge.yml -o out/merged
harmless "$readers write-beside" ckpt convert --to hf source/model out/folder
# signatures and statements
keys=$fixtures/model_signing
harmless "$readers" ckpt sign source/model --key "$keys/p256.key" --force -o out/model.sig
cp "$work/out/model.sig" "$work/model.sig"
harmless "$readers" ckpt verify source/model --key "$keys/p256.pub" --signature model.sig
harmless "$readers" ckpt convert --force source/model out/new/model.pt --attest out/model.json
# the folder that is mended may be written, nothing else
rm "$work/$run/latest"
harmless "$misdeeds" ckpt doctor --fix-latest "$run"

# works COMMAND...: what is allowed is allowed
works() {
    rm -rf "$work/out"
    if (cd "$work" && "$@" >printed 2>&1); then
        passed=$((passed + 1))
    else
        echo "FAILED $*: $(tail -n 1 "$work/printed")"
        failed=$((failed + 1))
    fi
}

# links: a cache of blobs, a tag that lies on another disk, a file by another name, links of links
cp -R "$fixtures/z1_bf16_w3_groups/ckpt" "$work/source/run2"
mkdir -p "$work/cache/blobs" "$work/cache/snapshots/a" "$work/disk" "$work/linked"
for f in "$work"/source/model/*; do
    n=$(basename "$f")
    cp "$f" "$work/cache/blobs/$n.blob"
    ln -s "../../blobs/$n.blob" "$work/cache/snapshots/a/$n"
done
mv "$work/source/run2/global_step4" "$work/disk/tag"
ln -s "$work/disk/tag" "$work/source/run2/global_step4"
ln -s ../disk/tag "$work/linked/global_step4"
ln -s global_step4 "$work/linked/again"
ln -s "../$file" "$work/linked/one.safetensors"
echo '* model.*' >"$work/linked/rules"
works ckpt info cache/snapshots/a
works ckpt info "cache/snapshots/a/$(basename "$file")"
works ckpt ls cache/snapshots/a/model.safetensors.index.json
works ckpt convert --to hf cache/snapshots/a out/hf
[ -f "$work/out/hf/config.json" ] || works false no side files through links
works ckpt sign cache/snapshots/a --follow-links --key "$keys/p256.key" -o linked.sig
works ckpt verify cache/snapshots/a --follow-links --key "$keys/p256.pub" --signature linked.sig
works ckpt convert source/model attested.pt --attest disk/attested.json
works zero_to_fp32 source/run2 out/linked
works ckpt verify source/run2/global_step4
works ckpt verify linked/again
works ckpt verify linked/one.safetensors
works ckpt doctor source/run2
works ckpt convert --rename linked/rules linked/one.safetensors out/renamed.safetensors
works ckpt convert "$run/../model/$(basename "$file")" --to torch ./here.pt
works sh -c 'cd source/run/global_step4 && ckpt convert --to hf . ../../../out/dot && ckpt info .. && ckpt ls ./*model_states.pt'
works sh -c 'ckpt ls /dev/stdin <"$1"' sh "$file"
works env TMPDIR=/nowhere ckpt verify "$run"
# nothing was written to a folder that was made: it goes again
works sh -c '! ckpt convert --to hf source out/a/b/c && ! [ -e out ]'
works sh -c '! ckpt convert source/missing out/x/y.pt && ! [ -e out ]'

echo "sandbox: $passed passed, $failed failed"
[ "$failed" -eq 0 ]
