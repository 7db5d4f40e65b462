# SPDX-License-Identifier: Apache-2.0
# A large vocabulary in another order: the comparison takes time linear in its size, and still finds one other number.
cp -r "$FIXTURES/gguf_llama_deep/hf" src && chmod -R u+w src
python3 - <<'END'
import json, shutil
x = json.load(open('src/tokenizer.json'))
def write(to, vocabulary):
    x['model']['vocab'] = vocabulary
    json.dump(x, open(to + '/tokenizer.json', 'w'))
words = {'word%d' % i: i for i in range(80000)}
write('src', words)
shutil.copytree('src', 'other')
write('other', dict(sorted(words.items(), reverse=True)))
shutil.copytree('src', 'changed')
write('changed', dict(sorted((words | {'word7': 8, 'more': 80000}).items())))
END
timeout 20 ckpt verify -q other --made-from src
echo "status $?"
timeout 20 ckpt verify -q changed --made-from src
echo "status $?"
