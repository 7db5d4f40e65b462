# SPDX-License-Identifier: Apache-2.0
# rope_scaling of config.json: a kind that the target cannot express, one without its numbers, and values that are no dict are refused.
cp -r "$FIXTURES/map_meta_s1/hf" model
try() {
    python3 - "$1" <<'END'
import json, sys

config = json.load(open('model/config.json'))
config.pop('rope_parameters', None)
config['rope_theta'] = 10000.0
config['rope_scaling'] = json.loads(sys.argv[1])
json.dump(config, open('model/config.json', 'w'))
END
    for to in $2; do
        echo "$1 $to"
        ckpt convert -q model out --to $to 2>said || echo "status $?"
        grep -v tokenizer said >&2
        [ ! -f out ] || ckpt tree out | grep -a 'rope.scal'
        [ ! -f out/params.json ] || grep -E 'scal' out/params.json
        rm -rf out
    done
}
for value in '"linear"' 5 '[1]' true; do
    try "$value" 'gguf megatron consolidated'
done
for value in null '{}' '{"rope_type": "default"}'; do
    try "$value" 'gguf megatron consolidated'
done
try '{"type": "linear", "factor": 2.0}' 'gguf consolidated'
try '{"type": "linear"}' gguf
try '{"rope_type": "yarn"}' gguf
try '{"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}' gguf
for factor in 8.0 32.0; do
    try '{"rope_type": "llama3", "factor": '$factor', "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}' 'gguf consolidated'
done
try '{"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 2.0, "original_max_position_embeddings": 8192}' consolidated
