# SPDX-License-Identifier: Apache-2.0
# A message names members of .metadata that torch does not write.
plant() { # NAME WHERE: a copy of the fixture, with one text more
    rm -rf "$1"
    cp -r "$FIXTURES/fsdp2_mp_w2/ckpt" "$1"
    chmod -R u+w "$1"
    python3 "$FIXTURES/../hostile/planted.py" --into "$1/.metadata" "$2" text
}
tensor=state!/state_dict_metadata/model.model.embed_tokens.weight/state!
for where in state! "$tensor" "$tensor/chunks/1/state!" "state!/storage_data/{}/state!" state!/storage_meta/state!; do
    echo "-- $where"
    plant run "$where"
    ckpt convert run out.safetensors -q --force
    echo "status $?"
    ckpt convert run strict.safetensors -q --strict
    echo "status $?"
done
echo "-- nothing planted"
ckpt convert "$FIXTURES/fsdp2_mp_w2/ckpt" out.safetensors -q --force
echo "status $?"
