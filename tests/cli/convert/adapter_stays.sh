# SPDX-License-Identifier: Apache-2.0
# Programs apply an adapter that lies beside a model: its own folder takes no merged model, and another one's stay is a warning.
T=$FIXTURES/peft_tied_head
cp -r "$T/adapter" own; chmod -R u+w own; cp -r own other; cp -r own named
ckpt convert -q "$T/base" own --to hf --adapter own; echo "status $?"
ckpt convert -q "$T/base" ./own/ --to hf --force --adapter own/adapter_model.safetensors:0.5; echo "status $?"
(cd own && ckpt convert -q "$T/base" . --to hf-bin --adapter adapter_model.safetensors; echo "status $?")
ls own
echo "-- another adapter"
ckpt convert -q "$T/base" other --to hf --strict; echo "status $?"
ckpt convert -q "$T/base" other --to hf --adapter own; echo "status $?"
rm named/adapter_model.safetensors
ckpt convert -q "$T/base" named --to hf; echo "status $?"
echo "-- an adapter beside a model"
ckpt convert -q "$T/base" model --to hf --no-side-files
ckpt convert -q own model --to hf; echo "status $?"
echo "-- its own files are replaced, and are no rivals"
cp -r "$T/adapter" again; chmod -R u+w again
ckpt convert -q own again --to hf --force; echo "status $?"
