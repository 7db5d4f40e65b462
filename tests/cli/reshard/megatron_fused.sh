# SPDX-License-Identifier: Apache-2.0
# DeepSpeed's FusedAdam keeps a step of 0 in its groups, beside the counts of its parameters: Megatron's groups get the counts.
python3 - <<'END'
import json
sizes = {'vocab_size': 97, 'hidden_size': 16, 'num_attention_heads': 2, 'num_key_value_heads': 2, 'head_dim': 8, 'num_hidden_layers': 2,
         'intermediate_size': 16, 'max_position_embeddings': 16}
json.dump({'architectures': ['LlamaForCausalLM'], 'model_type': 'llama', 'rms_norm_eps': 1e-6, 'rope_theta': 10000.0, 'hidden_act': 'silu',
           'tie_word_embeddings': False, 'attention_bias': False, 'mlp_bias': False, **sizes}, open('config.json', 'w'))
open('t.bin', 'wb').write(bytes(b for i in range(640) for b in ((i * 31 + i // 7) % 97, 0)))
json.dump({'train_batch_size': 8, 'bf16': {'enabled': True}, 'optimizer': {'type': 'AdamW', 'params': {'lr': 1e-2}},
           'zero_optimization': {'stage': 1}}, open('ds.json', 'w'))
END
zerotrain --deepspeed_config ds.json --model config.json --init none --data t.bin --max-steps 3 --save run --threads 1 --quiet
cp config.json run
for source in run universal dcp; do
    [ $source = run ] || ckpt reshard -q run $source --to $source
    ckpt reshard -q $source megatron_$source --to megatron --world 2 --config config.json 2>/dev/null
    echo "$source: status $?"
    ckpt tree megatron_$source 2>/dev/null | grep '^ *step:' | sort -u
    ckpt reshard -q megatron_$source back_$source --to zero --stage 1 --world 1 --config config.json 2>/dev/null
    ckpt diff --with-optimizer run back_$source 2>/dev/null
done
