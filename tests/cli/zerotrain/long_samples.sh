# SPDX-License-Identifier: Apache-2.0
# Samples beyond max_position_embeddings: a warning with rotary positions, also for evaluation, and
# with a limit that rope_scaling raises; an error with a table of positions.
. "$FIXTURES"/../cli/zerotrain_help.inc
python3 - <<'EOP'
import json
llama = {'architectures': ['LlamaForCausalLM'], 'model_type': 'llama', 'vocab_size': 97, 'hidden_size': 8, 'num_attention_heads': 2,
         'num_hidden_layers': 1, 'intermediate_size': 16, 'max_position_embeddings': 8}
def write(name, **more):
    json.dump({**llama, **more}, open(name + '.json', 'w'))
write('plain')
write('linear', rope_scaling={'rope_type': 'linear', 'factor': 2.0})
write('llama3', rope_scaling={'rope_type': 'llama3', 'factor': 2.0, 'low_freq_factor': 1.0, 'high_freq_factor': 4.0,
                              'original_max_position_embeddings': 4})
write('gemma3', num_key_value_heads=2, architectures=['Gemma3ForCausalLM'], model_type='gemma3_text', head_dim=4,
      rope_scaling={'rope_type': 'linear', 'factor': 2.0})
write('bloom', architectures=['BloomForCausalLM'], model_type='bloom', n_head=2, n_layer=1)
write('gpt2', architectures=['GPT2LMHeadModel'], model_type='gpt2', n_positions=8, n_embd=8, n_head=2, n_layer=1)
open('t.bin', 'wb').write(bytes(b for i in range(640) for b in ((i * 31 + 7) % 97, 0)))
EOP
go() {
    zerotrain --deepspeed_config ds.json --threads 1 --quiet --max-steps 1 --init none --data t.bin --model "$@"
    echo "$*: exit status $?"
}
go plain.json --seq 8
go plain.json --seq 9
go linear.json --seq 16
go linear.json --seq 17
go llama3.json --seq 8
go llama3.json --seq 9
go gemma3.json --seq 9
go bloom.json --seq 9
go gpt2.json --seq 9
go plain.json --seq 8 --eval-data t.bin --save-model saved
zerotrain --deepspeed_config ds.json --threads 1 --quiet --model saved --evaluate --data t.bin --seq 20 >evaluated
echo "exit status $?"
mpirun -q -n 2 zerotrain --deepspeed_config ds.json --threads 1 --quiet --max-steps 1 --init none --data t.bin --model plain.json --seq 9
echo "exit status $?"
