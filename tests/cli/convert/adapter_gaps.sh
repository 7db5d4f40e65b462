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
# updates of modules that the configuration does not choose, which peft leaves out
cp -R "$T/adapter" more && chmod -R u+w more
sed -i 's/"layers_to_transform": null/"layers_to_transform": [0]/' more/adapter_config.json
ckpt convert -q "$T/base" more.out --to hf --adapter more; echo "status $?"
cp -R "$FIXTURES/peft_tied_head/adapter" other && chmod -R u+w other
tr -d '\n' <other/adapter_config.json | sed 's/"target_modules": \[[^]]*\]/"target_modules": ["q_proj", "embed_tokens"]/' >new && mv new other/adapter_config.json
ckpt convert -q "$FIXTURES/peft_tied_head/base" other.out --to hf --adapter other; echo "status $?"
