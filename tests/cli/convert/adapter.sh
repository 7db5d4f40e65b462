# SPDX-License-Identifier: Apache-2.0
# An adapter in is an adapter out, with its configuration; a model in the same folder is kept, with a warning.
mkdir in
ckpt convert -q "$FIXTURES"/hf_bert_sharded in/adapter_model.safetensors --include '*LayerNorm*'
echo '{"peft_type": "LORA", "base_model_name_or_path": "base"}' >in/adapter_config.json
ckpt convert -q in out --to hf; ls out
ckpt convert -q in/adapter_model.safetensors bin --to hf-bin --max-shard-size 1KB; ls bin
ckpt convert -q -f bin out --to hf; ls out
ckpt convert -q -f in out --to hf-bin; ls out
ckpt convert -q "$FIXTURES"/hf_bert_sharded out --to hf; ls out
# Beside a model it is left where it is.
cp "$FIXTURES"/hf_bert_sharded/config.json in
ckpt convert -q "$FIXTURES"/hf_bert_sharded in --to hf --no-side-files
ckpt convert in both --to hf 2>&1 | grep "not copied"; ls both
# An adapter whose training changed the base when it began is refused.
cp -r "$FIXTURES"/peft_tied_head/adapter odd; chmod -R u+w odd
sed -i 's/"init_lora_weights": true/"init_lora_weights": "pissa_niter_16"/' odd/adapter_config.json
ckpt convert -q "$FIXTURES"/peft_tied_head/base merged --to hf --adapter odd; echo "status $?"; test ! -e merged && echo nothing
sed -i 's/"pissa_niter_16"/"mica"/' odd/adapter_config.json
ckpt convert -q "$FIXTURES"/peft_tied_head/base merged --to hf --adapter odd 2>&1 | grep init; ls merged
