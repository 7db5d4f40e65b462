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
