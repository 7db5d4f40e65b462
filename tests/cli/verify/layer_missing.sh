# SPDX-License-Identifier: Apache-2.0
# A run of a pipeline without the file of a layer: lost names of tied layers are an error like those of other layers.
for layer in 00 01 04; do
    echo "--- layer_$layer"
    cp -r "$FIXTURES"/pipe2_z1_w4_tied/ckpt run
    rm run/global_step3/layer_$layer-model_states.pt
    ckpt verify run >out
    status=$?
    sed 's/^ok: .*/ok/' out
    echo "exit status $status"
    ckpt convert --quiet run $layer.safetensors
    echo "exit status $?"
    ckpt reshard --quiet --stage 2 --world 2 run to$layer
    echo "exit status $?"
    rm -r run
done
ls
# without ZeRO the masters' shapes decide; where they fit no layers, the gap is a warning
echo "--- without ZeRO"
cp -r "$FIXTURES"/pipe2_z0_w2/ckpt run
mv run/global_step4/layer_04-model_states.pt run/global_step4/layer_05-model_states.pt
ckpt verify run >out
sed 's/^ok: .*/ok/' out
rm run/global_step4/layer_02-model_states.pt
ckpt verify --strict run >out
echo "exit status $?"
sed 's/^ok: .*/ok/' out
for verb in "convert" "reshard --stage 1"; do
    ckpt $verb --quiet --strict run none.safetensors
    echo "exit status $?"
done
# a frozen parameter in another layer's file: the lost one may have held some, too
echo "--- with a frozen parameter"
cp -r "$FIXTURES"/pipe2_z1_w4_tied/ckpt frozen
cp frozen/global_step3/layer_04-model_states.pt frozen/global_step3/layer_06-model_states.pt
ckpt verify frozen >out
sed 's/^ok: .*/ok/' out
