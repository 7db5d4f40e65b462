# SPDX-License-Identifier: Apache-2.0
# Inside a tag folder, the configuration is in the folder above, whatever the tag is called by.
cp -r "$FIXTURES"/hf_trainer_llama_z3_bf16_w2/ckpt run
chmod -R u+w run
cd run/global_step4
mkdir sub
for s in . ./ ../global_step4 zero_pp_rank_0_mp_rank_00_model_states.pt; do
    ckpt convert -q "$s" ../../out --to hf && ls ../../out
    rm -r ../../out
done
cd sub
for s in .. ../ ../.; do
    ckpt convert -q "$s" ../../../out --to hf && ls ../../../out
    rm -r ../../../out
done
