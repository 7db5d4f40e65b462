# SPDX-License-Identifier: Apache-2.0
# ckpt maps check: what each rule of a map takes, what is left over, and whether the way back gives the same tensors.
M=$FIXTURES/torchtune/qwen2
check() { ckpt maps check "$@"; echo "status $?"; }
echo "-- a map of the program, by its layouts and by its file"
check hf:torchtune "$M" | tail -4
check "$FIXTURES/../../tools/share/maps/hf-torchtune.map" "$M" --json | python3 -c "
import json, sys
text = sys.stdin.read()
d, status = json.loads(text[:text.rindex('}') + 1]), text[text.rindex('}') + 1:].strip()
print({k: v if not isinstance(v, list) else len(v) for k, v in d.items()}['tensors'], d['for_this_model'], d['left_over'], d['way_back'], d['no_way_back'], status)
print([r for r in d['rules'] if r['tensors'] == 0][0])"
check hf-torchtune.map "$M/own/own.bin" --backwards --config "$M/config.json" -q
echo "-- a map of one's own: a rule for each tensor"
cat >own.map <<'EOM'
map hf:mine
    model.embed_tokens.weight = emb
    model.layers.{i}.{rest...} = blocks.{i}.{rest...}
    model.norm.weight = norm
    lm_head.weight = head
EOM
check own.map "$M"
echo "-- a tensor without a rule, one that does not fit, one that is dropped, and a rule without a tensor"
cat >lacks.map <<'EOM'
map hf:mine
sizes
    heads = 5
    two   = 2
tensors
    model.embed_tokens.weight = emb
    model.layers.{i}.self_attn.q_proj.weight "(heads two d) in" = blocks.{i}.q "(heads d two) in"
    drop left model.layers.{i}.self_attn.{w*}.bias because "mine has no biases"
    model.layers.{i}.self_attn.k_proj.weight = blocks.{i}.k
    model.layers.{i}.self_attn.v_proj.weight = blocks.{i}.v
    model.layers.{i}.self_attn.o_proj.weight = blocks.{i}.o
    model.layers.{i}.mlp.{w*}.weight = blocks.{i}.{w*}
    model.layers.{i}.gone.weight = blocks.{i}.gone
    model.norm.weight = norm
EOM
check lacks.map "$M"
check lacks.map "$M" -q --json | grep -c '"name"'
echo "-- a rule that works from right to left only, and a way back to other tensors"
cat >one_way.map <<'EOM'
map hf:mine
    model.norm.weight = copies rank{r}/norm
    {rest...} = {rest...}
EOM
check one_way.map "$M"
cat >lossy.map <<'EOM'
map hf:mine
    model.layers.{i}.input_layernorm.weight = norms.{i}
    model.layers.{i}.post_attention_layernorm.weight = norms.{i+1}
    {rest...} = {rest...}
EOM
check lossy.map "$M"
echo "-- for another model"
{ echo "map hf:mine"; echo "left when model_type in llama"; sed 1d own.map; } >when.map
check when.map "$M" -q
echo "-- a size that is missing, and wrong arguments"
sed 's/heads = 5/heads = nowhere/' lacks.map >size.map
check size.map "$M" -q
check size.map "$M" -q --size nowhere=4
check martian "$M"
check own.map
check own.map nothing
ckpt maps --size a=1; echo "status $?"
ckpt maps hf gguf; echo "status $?"
echo "-- many tensors without a rule: seconds of processor time that no quadratic search would meet"
python3 - <<'EOP'
import json, os, struct
os.mkdir('many')
head = {'t.%d' % i: {'dtype': 'F32', 'shape': [1], 'data_offsets': [4 * i, 4 * i + 4]} for i in range(40000)}
text = json.dumps(dict(head, emb={'dtype': 'F32', 'shape': [1], 'data_offsets': [160000, 160004]})).encode()
open('many/model.safetensors', 'wb').write(struct.pack('<Q', len(text)) + text + bytes(160004))
EOP
printf 'map hf:mine\n    emb = table\n' >one.map
(ulimit -t 5; ckpt maps check one.map many -q | tail -n 1)
