# SPDX-License-Identifier: Apache-2.0
# Files of metrics that are none are refused when they were named, and told of when they were found.
cp -r "$FIXTURES"/hf_trainer_llama_z3_bf16_w2/ckpt run
chmod -R u+w run
echo '{"step": 1, "loss": "x"}' >text.jsonl
echo '{"step": 1, "epoch": 2}' >other.jsonl
printf '{"step": 1, "loss": 2}\n{"step": 2, "loss": NaN}\n' >good.jsonl
ckpt report run --metrics text.jsonl -o a.html; echo $?
ckpt report run --metrics other.jsonl -o a.html; echo $?
ckpt report run --metrics nothing.jsonl -o a.html; echo $?
ckpt report run --metrics good.jsonl -o a.html | sed 's/: [0-9.]* KB;/: SIZE;/'
ckpt report run --svg curves -o a.svg | sed 's/: [0-9.]* KB;/: SIZE;/'
echo '{' >run/trainer_state.json
ckpt report run -o b.html | sed 's/: [0-9.]* KB;/: SIZE;/'
ckpt report run --svg curves -o b.svg; echo $?
rm run/trainer_state.json
ckpt report run --svg curves -o b.svg; echo $?
ls
