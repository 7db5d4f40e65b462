# SPDX-License-Identifier: Apache-2.0
"""Token files made of text: their bytes, what ends a document, what is refused; zerotrain reads them."""
import array
import json
import os
import subprocess
import sys
import unittest

from help import BIN, Case, has, needs_numpy

WORDS = ['<unk>', '<end>', 'a', 'b', 'c', 'd']


@unittest.skipUnless(has('tokenizers'), 'tokenizers is not here')
class Tokens(Case):
    def setUp(self):
        from tokenizers import Tokenizer, models, pre_tokenizers
        self.folder = self.scratch()
        t = Tokenizer(models.WordLevel({w: i for i, w in enumerate(WORDS)}, unk_token='<unk>'))
        t.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
        t.save(self.path('tokenizer.json'))
        self.put('tokenizer_config.json', json.dumps({'eos_token': {'content': '<end>'}}))

    def path(self, name):
        return os.path.join(self.folder, name)

    def put(self, name, text):
        with open(self.path(name), 'w', encoding='utf-8') as f:
            f.write(text)
        return self.path(name)

    def run_it(self, *args, code=0):
        p = subprocess.run([sys.executable, '-m', 'ckpt.tokens', '--tokenizer', self.folder, *args], capture_output=True, text=True,
                           timeout=300, check=False)
        self.assertEqual(p.returncode, code, p.stderr)
        return p.stdout + p.stderr

    def tokens(self, name, kind):
        with open(self.path(name), 'rb') as f:
            row = array.array(kind, f.read())
        return list(row)

    def test_documents(self):
        one, two = self.put('one.txt', 'a b\nc'), self.put('two.jsonl', '{"text": "d"}\n\n{"text": "a zebra"}\n')
        said = self.run_it('-o', self.path('out.bin'), one, two)
        self.assertIn('9 tokens of 2 bytes', said)
        self.assertIn('uint16', said)
        self.assertEqual(self.tokens('out.bin', 'H'), [2, 3, 4, 1, 5, 1, 2, 0, 1])
        self.run_it('-o', self.path('lines.bin'), '--lines', '--eos', 'd', one)
        self.assertEqual(self.tokens('lines.bin', 'H'), [2, 3, 5, 4, 5])
        self.run_it('-o', self.path('none.bin'), '--no-eos', one)
        self.assertEqual(self.tokens('none.bin', 'H'), [2, 3, 4])

    def test_width_is_the_models(self):
        one, config = self.put('one.txt', 'a b'), self.put('config.json', '{"vocab_size": 65537}')
        self.run_it('-o', self.path('wide.bin'), '--model', config, one)
        self.assertEqual(self.tokens('wide.bin', 'I'), [2, 3, 1])
        self.put('config.json', '{"vocab_size": 3}')
        self.assertIn('token 3 is outside', self.run_it('-o', self.path('few.bin'), '--model', config, one, code=2))

    @needs_numpy
    def test_npy(self):
        import numpy
        self.run_it('-o', self.path('out.npy'), self.put('one.txt', 'a b c'))
        row = numpy.load(self.path('out.npy'))
        self.assertEqual((row.dtype, row.tolist()), (numpy.dtype('<u2'), [2, 3, 4, 1]))

    def test_refused(self):
        one = self.put('one.txt', 'a')
        for args, said in ((['-o', 'x.txt', one], '.bin or .npy'), (['-o', self.path('o.bin'), '--eos', 'zebra', one], "no token 'zebra'"),
                           (['-o', self.path('o.bin'), self.path('gone')], 'No such file'),
                           (['-o', self.path('o.bin'), self.put('bad.jsonl', '[1]\n')], 'line 1 is not a JSON object'),
                           (['-o', self.path('o.bin'), self.put('bad2.jsonl', '{"x": 1}\n')], '--field'),
                           (['-o', self.path('o.bin'), self.put('empty.txt', '')], 'has no text')):
            self.assertIn(said, self.run_it(*args, code=2))
        self.assertEqual([n for n in os.listdir(self.folder) if n.startswith('o.')], [])

    def test_trained_on(self):
        text = self.put('one.txt', 'a b c d ' * 40)
        model = {'architectures': ['LlamaForCausalLM'], 'vocab_size': len(WORDS), 'hidden_size': 8, 'intermediate_size': 8,
                 'num_hidden_layers': 1, 'num_attention_heads': 2, 'max_position_embeddings': 8}
        self.put('config.json', json.dumps(model))
        self.put('ds.json', '{"train_batch_size": 4, "optimizer": {"type": "AdamW", "params": {"lr": 0.01}}}')
        self.run_it('-o', self.path('out.bin'), '--model', self.folder, text)
        p = subprocess.run([os.path.join(BIN, 'zerotrain'), '--deepspeed_config', self.path('ds.json'), '--model', self.folder,
                            '--data', self.path('out.bin'), '--max-steps', '2', '--threads', '1'], capture_output=True, text=True,
                           timeout=300, check=False)
        self.assertEqual(p.returncode, 0, p.stderr)


class Without(Case):
    def test_said(self):
        code = "import sys; sys.modules['tokenizers'] = None\nimport ckpt.tokens as t\n" \
               "sys.exit(t.main(['--tokenizer', 'x', '-o', 'y.bin', 'z']))"
        p = subprocess.run([sys.executable, '-c', code], capture_output=True, text=True, timeout=300, check=False)
        self.assertEqual(p.returncode, 2)
        self.assertIn('pip install tokenizers', p.stderr)
