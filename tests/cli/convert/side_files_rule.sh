# SPDX-License-Identifier: Apache-2.0
# What belongs to a model goes along by what it is; training state, weights and links elsewhere do not, and are named.
ckpt convert -q "$FIXTURES"/hf_bert_sharded in --to hf --no-side-files
echo '{}' >in/config.json
for f in generation_config processor_config preprocessor_config video_preprocessor_config quantize_config tekken \
    config_sentence_transformers trainer_state all_results ds_config_zero3; do
    echo '{}' >in/$f.json
done
echo '[{"path": "1_Pooling"}]' >in/modules.json
mkdir in/1_Pooling in/additional_chat_templates in/runs in/global_step4 in/1_Pooling/deeper
echo '{}' >in/1_Pooling/config.json
echo '{{ x }}' >in/additional_chat_templates/tool.jinja
for f in modeling_mine.py configuration_mine.py train.py LICENSE README.md spiece.model optimizer.pt rng_state_0.pth .hidden \
    model.fp16.safetensors adapter_model.safetensors zero_to_fp32.py; do
    echo x >in/$f
done
echo secret >secret
ln -s ../secret in/notes.txt
ln -s LICENSE in/NOTICE
mkdir -p cache/blobs cache/snapshots/rev
cp in/model.safetensors cache/blobs/0123
echo '{"auto_map": {}}' >cache/blobs/4567
ln -s ../../blobs/0123 cache/snapshots/rev/model.safetensors
ln -s ../../blobs/4567 cache/snapshots/rev/config.json
echo x >cache/snapshots/rev/helper.py
ckpt convert in out --to hf | cut -c1-13
find out -type f | LC_ALL=C sort
# A hub cache is made of links; its configuration names code, so all code goes along.
ckpt convert -q cache/snapshots/rev hub --to hf
find hub -type f | LC_ALL=C sort
# A folder that does not say that it holds a model may be anything: names of models only.
mkdir home
cp in/model.safetensors home/m.safetensors
echo x >home/password.json
echo x >home/notes.txt
echo '{}' >home/tokenizer.json
ckpt convert home/m.safetensors bare --to hf | cut -c1-13
find bare -type f | LC_ALL=C sort
# Over an older folder, the folders within are made and replaced, too.
echo '{"new": 1}' >in/1_Pooling/config.json
ckpt convert -q -f in out --to hf && cat out/1_Pooling/config.json
