# SPDX-License-Identifier: Apache-2.0
# Tokenizers that say what cannot be: named, and nothing is written.
cat >bad.py <<'END'
import json, shutil, subprocess, sys
model, bert = sys.argv[1:]


def case(what, source, edit):
    shutil.rmtree('m', ignore_errors=True)
    shutil.copytree(source, 'm')
    subprocess.run(['chmod', '-R', 'u+w', 'm'])
    with open('m/tokenizer.json') as f:
        tokenizer = json.load(f)
    replaced = edit(tokenizer)
    with open('m/tokenizer.json', 'w') as f:
        json.dump(tokenizer if replaced is None else replaced, f)
    p = subprocess.run(['ckpt', 'convert', '-q', '-f', 'm', 'm.gguf'], capture_output=True, text=True)
    print('%s: %d %s' % (what, p.returncode, p.stderr.split('\n')[0]))


def vocab(**tokens):
    return lambda j: j['model']['vocab'].update(tokens)


case('as it is', model, lambda j: None)
case('a list', model, lambda j: [])
case('a vocabulary that is a list', model, lambda j: j['model'].update(vocab=[1, 2]))
case('no tokens', model, lambda j: j['model'].update(vocab={}))
case('a number as text', model, vocab(new='7'))
case('a number below 0', model, vocab(new=-1))
case('half a number', model, vocab(new=5.5))
case('a number of two tokens', model, vocab(new=7))
case('a number beyond the model', model, vocab(new=99999))
case('a large number', model, vocab(new=2 ** 31))
case('merges that are a number', model, lambda j: j['model'].update(merges=5))
case('no merges', model, lambda j: j['model'].pop('merges') and None)
case('a merge of three', model, lambda j: j['model']['merges'].append(['a', 'b', 'c']))
case('a merge of one', model, lambda j: j['model']['merges'].append('ab'))
case('a merge of what is unknown', model, lambda j: j['model']['merges'].append('qqq zzz'))
case('added tokens that are a dict', model, lambda j: j.update(added_tokens={'a': 1}))
case('an added token without number', model, lambda j: j.update(added_tokens=[{'content': 'x'}]))
case('an added token of another', model, lambda j: j.update(added_tokens=[{'id': 7, 'content': '<x>', 'special': True}]))
shutil.copytree(bert, 'bert')
subprocess.run(['chmod', '-R', 'u+w', 'bert'])
case('no unknown word', 'bert', lambda j: j['model']['vocab'].pop('[UNK]') and None)
END
python3 bad.py "$FIXTURES/gguf_llama_deep/hf" "$FIXTURES/gguf_bert/hf"
