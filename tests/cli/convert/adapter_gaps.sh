# SPDX-License-Identifier: Apache-2.0
# An adapter whose last layer is lost: modules that it has in other layers, and the base in this one, are named.
T=$FIXTURES/peft_gpt2_conv1d
cp -R "$T/adapter" part && chmod -R u+w part
ckpt convert -q "$T/adapter" cut --to hf --exclude '*.h.1.*' && cp cut/adapter_model.safetensors part
ckpt convert -q "$T/base" out --to hf --adapter part; echo "status $?"
ckpt convert -q --strict "$T/base" strict --to hf --adapter part; echo "status $?"
ckpt convert -q --strict "$T/base" whole --to hf --adapter "$T/adapter"; echo "status $?"
sed -i 's/"layers_to_transform": null/"layers_to_transform": [0]/' part/adapter_config.json
ckpt convert -q --strict "$T/base" chosen --to hf --adapter part; echo "status $?"
