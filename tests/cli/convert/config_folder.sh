# SPDX-License-Identifier: Apache-2.0
# Configuration and tokenizer of a folder that --config names, for a run that has none beside it.
run=$FIXTURES/hf_trainer_llama_z3_bf16_w2/ckpt
mkdir bare model
cp -r "$run/latest" "$run/global_step4" bare
cp "$run/config.json" "$run/generation_config.json" model
awk 'BEGIN { printf "{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0, \"b\": 1, \"ab\": 2"
             for (i = 3; i < 49; i++) printf ", \"t%d\": %d", i, i
             print "}, \"merges\": [\"a b\"]}}" }' >model/tokenizer.json
ckpt convert -q bare out.gguf
ckpt convert -q bare a.gguf --config model && ckpt info a.gguf | head -3
ckpt convert -q bare b.gguf --config model/config.json && ckpt ls -q b.gguf | tail -1
ckpt convert -q bare hf --to hf --config model && ls hf
ckpt convert -q bare plain --to hf && ls plain
# what it can have no effect on
ckpt convert -q bare x.npz --config model
ckpt convert -q bare file --to hf --config model/config.json
ckpt convert -q bare none --to hf --config bare
ckpt convert -q bare quiet --to hf --config model --no-side-files
ls
