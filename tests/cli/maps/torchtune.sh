# SPDX-License-Identifier: Apache-2.0
# torchtune's own names become Hugging Face's, as torchtune converts them, and back.
for model in llama qwen2; do
    T=$FIXTURES/torchtune/$model
    ckpt convert -q "$T/own/own.bin" "$model" --to hf --config "$T/config.json" && ckpt diff "$model" "$T"
    grep -c . "$model/config.json"
    ckpt convert -q "$T" "$model.safetensors" --map hf:torchtune && ckpt diff --map none "$model.safetensors" "$T/own/own.bin"
done
# the scaling of Llama 3.1 stays
T=$FIXTURES/torchtune/llama
scaled='"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 16'
sed "s/\"rope_type\": \"default\"/$scaled/" "$T/config.json" >scaled.json
ckpt convert -q "$T/own/own.bin" scaled --to hf --config scaled.json && sed -n '/rope_scaling/,/}/p' scaled/config.json
# so do other scalings, windows, and biases; a class that torchtune's names do not tell is asked for
scaled='"rope_type": "yarn", "factor": 4.0, "beta_fast": 32.0, "original_max_position_embeddings": 16'
sed "s/\"rope_type\": \"default\"/$scaled/; s/^{/{\"sliding_window\": 8,/" "$T/config.json" >yarn.json
ckpt convert -q "$T/own/own.bin" yarn --to hf --config yarn.json && grep -E 'sliding_window|yarn|beta|factor' yarn/config.json
sed 's/"model_type": "llama"/"model_type": "gemma"/' "$T/config.json" >gemma.json
ckpt convert -q "$T/own/own.bin" gemma --to hf --config gemma.json
ls gemma
# what tensors do not say is asked for
ckpt convert "$FIXTURES/torchtune/llama/own/own.bin" no --to hf || echo "status $?"
