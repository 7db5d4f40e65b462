# SPDX-License-Identifier: Apache-2.0
# accelerate's folders without the model, with a second optimizer, and without the schedule.
each() {
    for verb in info ls verify doctor; do
        ckpt $verb "$1" >told 2>&1
        echo "$verb: $?"
    done
    rm -rf out
    ckpt convert -q "$1" out --to hf
    echo "convert: $?"
    ckpt reshard -q --no-fsync "$1" out --stage 1 -w 2
    echo "reshard: $?"
}
ckpt reshard -q --no-fsync --to dcp --layout accelerate --to-tag x "$FIXTURES/fsdp2_mp_w2/ckpt" run
echo "== the model is lost"
cp -r run/x some
rm -r some/pytorch_model_fsdp_0
each some
cp -r run/x run/y
rm -r run/y/pytorch_model_fsdp_0
ckpt doctor run
echo "== a second optimizer"
cp -r run/x/optimizer_0 run/x/optimizer_1
each run/x
echo "== no schedule, in one file and in shards"
cp -r "$FIXTURES/accel_fsdp1_full_w2/ckpt" full
chmod -R u+w full
rm full/scheduler.bin
ckpt reshard -q --no-fsync full out --stage 1 -w 2 --to-tag full
echo "reshard: $?"
ckpt reshard -q --no-fsync --to dcp --layout accelerate --to-tag z full run 2>told
touch run/z/random_states_0.pkl
ckpt reshard -q --no-fsync run/z out --stage 1 -w 2 --to-tag shards
echo "reshard: $?"
cp full/optimizer.bin full/optimizer_1.bin
ckpt info full | grep optimizer_1
ckpt reshard -q --no-fsync full out --stage 1 -w 2 --to-tag second
echo "reshard: $?"
