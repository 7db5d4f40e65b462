# SPDX-License-Identifier: Apache-2.0
# NeMo Automodel: a distributed checkpoint, or sharded safetensors, in model, and the optimizer in optim.
A=$FIXTURES/automodel_w2
ckpt info "$A/dcp" | grep -e '^format' -e '^tag' && ckpt doctor "$A/dcp"
ckpt convert -q --with-optimizer "$A/dcp" all.safetensors && ckpt diff -q all.safetensors "$A/truth.safetensors" && echo all equal
ckpt reshard -q "$A/dcp/epoch_0_step_2" zero --to zero --world 3 --stage 2 && ckpt diff --with-optimizer "$A/dcp" zero
# the configuration is in .hf_metadata; the optimizer is named when it is left out, and not lost by a resume
ckpt convert "$A/st" hf --to hf && grep model_type hf/config.json && ckpt diff hf "$A/dcp"
ckpt reshard "$A/st" no --to zero --world 2 --stage 1 || echo "status $?"
ckpt doctor "$A/st"
# links to a checkpoint, as Automodel makes them
mkdir run && cp -r "$A/dcp/epoch_0_step_2" run && ln -s epoch_0_step_2 run/LATEST && ckpt ls run/LATEST && ckpt ls run | tail -1
# the optimizer is missing, or the model
cp -r run/epoch_0_step_2 half && chmod -R u+w half && rm -r half/optim/.metadata
ckpt reshard half no --to zero --world 2 --stage 1 || echo "status $?"
cp -r run/epoch_0_step_2 other && chmod -R u+w other && rm -r other/model
ckpt ls other || echo "status $?"
# its model is an adapter, or one file
mkdir other/model && ckpt convert -q "$FIXTURES/map_meta_s1/hf" other/model/adapter_model.safetensors --to safetensors
ckpt ls other || echo "status $?"
# saves that were cut before the model, within it, or before the optimizer was whole: the step before, with a warning
cp -r run cut && chmod -R u+w cut && rm cut/LATEST
step() {
    mkdir -p cut/epoch_0_step_4 && cp -r "$A/$1/epoch_0_step_2/." cut/epoch_0_step_4 && chmod -R u+w cut
}
for form in dcp st; do
    step $form && rm -r cut/epoch_0_step_4/optim && ckpt info cut | grep -e '^tag ' -e '^warning.*finish'
    rm cut/epoch_0_step_4/model/*.safetensors cut/epoch_0_step_4/model/.metadata 2>/dev/null
    ckpt info cut | grep -e '^tag ' -e '^warning.*finish'
    rm -r cut/epoch_0_step_4/model && ckpt info cut | grep -e '^tag ' -e '^warning.*finish'
    rm -r cut/epoch_0_step_4 && step $form && rm cut/epoch_0_step_4/optim/.metadata && ckpt info cut | grep -e '^tag ' -e '^warning.*finish'
    rm -r cut/epoch_0_step_4
done
# a run that changed its form: the newest of both
step st && ckpt info cut 2>/dev/null | grep -e '^tag ' -e ^format
mv cut/epoch_0_step_4 cut/epoch_0_step_1 && ckpt info cut | grep -e '^tag ' -e ^format
# without the last rank each table is shorter than config.json says
cp -r "$A/st" short && chmod -R u+w short && rm short/*/model/shard-00002*
ckpt ls short || echo "status $?"
sed -i 's/embed_tokens/embed_tokers/g' short/*/model/shard-00001* && ckpt ls short | tail -1
