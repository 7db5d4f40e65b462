# SPDX-License-Identifier: Apache-2.0
# A LoRA adapter merged into its base: what is said, weights, a tied head kept apart, and the plan.
T=$FIXTURES/peft_tied_head
ckpt convert "$T/base" merged --to hf --adapter "$T/adapter"
ckpt ls merged | grep -c lm_head
ckpt convert "$T/base" untied --to hf --adapter "$T/adapter" --untie 2>&1 | sed 's/^.*: wrote/wrote/'
ckpt ls untied | grep lm_head
grep -h tie_word untied/config.json merged/config.json
ckpt diff "$T/base" untied | sed -n 1,3p
# --strict: a head that changes along is no merge of what was trained
ckpt convert -q "$T/base" strict --to hf --adapter "$T/adapter" --strict || echo "status $?"
# half of it twice is nearly all of it
ckpt convert -q "$T/base" halves --to hf --adapter "$T/adapter:0.5" --adapter "$T/adapter:0.5"
ckpt diff --tol 1e-4 merged halves && echo near
ckpt convert -q "$T/base" less --to hf --adapter "$T/adapter:0.5"
ckpt diff --tol 1e-4 merged less | tail -n 1
ckpt convert --dry-run "$T/base" dry --to hf --dtype bf16 --adapter "$T/adapter"
ls
