# SPDX-License-Identifier: Apache-2.0
# A run has the names of the model in memory (experts stacked), the hub's folder of the same model its own: they meet by name.
src=$FIXTURES/hub_olmoe
ckpt merge "$src/run" "$src/hub" -o mean --dtype f32 2>&1 | grep -v -e wrote -e SPEED
ckpt merge -q "$src/hub" "$src/run" -o other --dtype f32 && ckpt diff mean other
ls mean | grep config
# the run's weights are the hub's, rounded
ckpt diff --tol 0.0003 --ignore-dtype mean "$src/hub"
echo "-- a base, and a file"
ckpt convert -q "$src/hub" memory.safetensors --map hf:packed
ckpt merge -q -m task_arithmetic --base "$src/hub" memory.safetensors -o task && ckpt diff task "$src/hub"
echo "-- nothing but names of memory"
ckpt merge -q "$src/run" memory.safetensors -o packed.safetensors && ckpt ls -q packed.safetensors | grep -c gate_up_proj
echo "-- no table for this model"
mkdir bare && cp "$src"/hub/*.safetensors* bare
printf '{"model_type": "unheard", "architectures": ["UnheardForCausalLM"]}' >bare/config.json
ckpt merge -q "$src/run" bare -o never
echo "$?"
