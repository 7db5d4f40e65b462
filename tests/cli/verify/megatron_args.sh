# SPDX-License-Identifier: Apache-2.0
# Megatron's files of ranks that say another size, or another number of samples, are not of one save.
for key in consumed_train_samples num_attention_heads tensor_model_parallel_size; do
    rm -rf run
    cp -r "$FIXTURES/mlegacy_gpt2_tp2_pp2/ckpt" run && chmod -R u+w run
    python3 "$FIXTURES"/../cli/other_step.py run/iter_0000003/mp_rank_01_001/model_optim_rng.pt $key
    ckpt verify -q run
    echo "status $?"
    ckpt convert -q run out.safetensors
    echo "status $?"
done
