# SPDX-License-Identifier: Apache-2.0
# A member that only the last model-parallel rank's file has is kept, or a message names it.
plant() { # NAME SOURCE FILE WHERE KIND: a copy of the folder, with one value more in a file of its tag
    rm -rf "$1"
    cp -r "$2" "$1"
    chmod -R u+w "$1"
    python3 "$FIXTURES/../hostile/planted.py" --into "$(echo "$1"/*/"$3")" "$4" "$5"
}
convert() { # NAME FORMAT...
    name=$1
    shift
    for format in "$@"; do
        ckpt reshard "$name" out --to "$format" -q
        echo "status $?"
        rm -rf out
    done
}
echo "-- the last layer of a pipeline"
plant run "$FIXTURES/pipe2_z0_w2/ckpt" layer_04-model_states.pt "" text
convert run universal dcp fsdp-ranks
