# SPDX-License-Identifier: Apache-2.0
# Deflated as numpy.savez_compressed does: the same arrays and bytes each time; only npz has it.
source="$FIXTURES"/hf_trainer_llama_z3_bf16_w2/ckpt
ckpt convert --compress --dry-run "$source" a.npz
ckpt convert -q --compress "$source" a.npz
ckpt convert -q --compress -j 1 --memory 1MiB "$source" b.npz
ckpt convert -q "$source" stored.npz
cmp a.npz b.npz
[ "$(stat -c %s a.npz)" -lt "$(stat -c %s stored.npz)" ] && echo smaller
ckpt diff stored.npz a.npz
ckpt verify a.npz
ckpt convert -q --compress "$source" a.pt
echo $?
ls -A
