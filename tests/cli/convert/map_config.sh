# SPDX-License-Identifier: Apache-2.0
# Layout maps by themselves, and what they say of the model: config.json, params.json, what is missing.
run=$FIXTURES/mcore_llama_distopt_dp2/ckpt
ckpt convert -q "$run" out --to hf; ls out
ckpt convert -q "$run" out --to hf --size args.norm_epsilon=1e-5 -f && cat out/config.json
ckpt convert -q "$run" again --to hf --config out/config.json && cmp out/config.json again/config.json && echo the same
ckpt convert -q "$run" run.gguf --size rms_norm_eps=1e-5 --no-side-files && ckpt ls run.gguf | tail -1
ckpt convert "$run" none --to hf --map none 2>/dev/null && ls none
ckpt convert "$FIXTURES"/map_meta_s1/hf meta --to consolidated 2>/dev/null && ls meta && cat meta/params.json
ckpt convert meta hub --to hf 2>/dev/null && ckpt diff hub "$FIXTURES"/map_meta_s1/hf && grep max_position hub/config.json
ckpt convert -q "$FIXTURES"/map_meta_llama2_s2/meta two --to hf; ls two
ckpt convert -q "$FIXTURES"/gguf_bert/hf bert.gguf && ckpt convert -q bert.gguf bert --to hf && grep model_type bert/config.json
ckpt convert -q "$FIXTURES"/hf_bert_sharded plain --to hf --size rows=3
ckpt convert -q "$FIXTURES"/hf_bert_sharded plain.pt --size rows=3
ckpt convert -q meta hub --to hf -f --size wings=3
ckpt convert -q meta hub --to hf -f --size heads=0
