#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Pages and pictures of `ckpt report`, without a browser: well formed, nothing from outside, escaped, and the numbers those of
`ckpt ls`.  Prints "report: N passed, N failed".

    run.py --bin build/bin [--gen build/gen_zero] FIXTURES [CASE...]
"""
import argparse
import json
import math
import os
import random
import shutil
import struct
import subprocess
import sys
import tempfile
import xml.etree.ElementTree

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from page import Page  # noqa: E402

HOSTILE = ['</script><script>document.title="owned"</script>', '<img src=x onerror=alert(1)>', "quote'\"&amp;.weight", 'back\\slash.n',
           '<!--<script>.w', 'line\nbreak.w', 'bell\x07\x1b[31m.w', 'right\u202eleft.w', 'zero\u200bwidth.w', 'é.日本.w', 'x.0.w', '']
RUNS = ['z1_bf16_w2_tags/ckpt', 'z3_bf16_w5_odd/ckpt', 'z1_bf16_w3_groups/ckpt', 'tp2_pp2_z1_w4/ckpt', 'dcp_mesh2d_w4/ckpt', 'fsdp2_mp_w2/ckpt',
        'moe_ep2_z1_w4/ckpt', 'safetensors_dtypes', 'hf_trainer_llama_z3_bf16_w2/ckpt']


class Failed(Exception):
    pass


def check(truth, text, *more):
    if not truth:
        raise Failed(text + ''.join(' %.300r' % (m,) for m in more))


def safetensors(path, tensors):
    """A file of (name, dtype, shape, bytes)."""
    head, at = {}, 0
    for name, dtype, shape, raw in tensors:
        head[name] = {'dtype': dtype, 'shape': shape, 'data_offsets': [at, at + len(raw)]}
        at += len(raw)
    text = json.dumps(head).encode()
    with open(path, 'wb') as f:
        f.write(struct.pack('<Q', len(text)) + text + b''.join(t[3] for t in tensors))


class Tests:
    def __init__(self, args, folder):
        self.bin, self.gen, self.fixtures, self.folder = os.path.abspath(args.bin), args.gen, os.path.abspath(args.fixtures), folder

    def fixture(self, name):
        path = os.path.join(self.fixtures, name)
        return path if os.path.exists(path) else os.path.dirname(path)

    def ckpt(self, *words, status=0):
        done = subprocess.run([os.path.join(self.bin, 'ckpt'), *words], capture_output=True, cwd=self.folder)
        check(done.returncode == status, 'ckpt %s ended with %d, not %d:' % (words, done.returncode, status), done.stderr.decode('utf-8', 'replace'))
        return done.stdout.decode()

    def page(self, *words, status=0, name='report.html'):
        self.ckpt('report', *words, '-f', '-o', name, status=status)
        with open(os.path.join(self.folder, name), encoding='utf-8') as f:
            page = Page(f.read())
        check(not page.faults, 'the page is wrong:', page.faults)
        return page

    # ---- cases ----

    def test_structure_and_numbers(self):
        """Every tensor, its dtype, shape, role, bytes and parts as `ckpt ls` has them."""
        for name in RUNS:
            path = self.fixture(name)
            page, listed = self.page(path), json.loads(self.ckpt('ls', '-l', '--json', path))
            data = page.data
            check(len(data['tensors']) == listed['n_tensors'], name + ': tensors', len(data['tensors']))
            root = listed['path']
            files = {}
            for t, want in zip(data['tensors'], listed['tensors']):
                have = (page.name(t), data['dtypes'][t['d']], t['s'], data['roles'][t['r']], t['z'], t.get('o'))
                check(have == (want['name'], want['dtype'], want['shape'], want['role'], want['bytes'], want['owner']), name, have, want)
                if want['owner']:
                    check('p' not in t and 'b' not in t, name + ': a tied tensor has parts', t)
                    continue
                parts = page.parts(t)
                check(len(parts) == len(want['extents']) == t['k'], name + ': parts of ' + want['name'], len(parts), len(want['extents']))
                for (f, box), extent in zip(parts, want['extents']):
                    path_of = data['files'][f][0]
                    check(extent['file'].endswith('/' + path_of) or extent['file'] == path_of or root.endswith(path_of), name, path_of, extent['file'])
                    files.setdefault(f, set()).add(extent['file'])
                    if len(box) == len(extent['box']):
                        check(box == [tuple(a[:2]) for a in extent['box']], name, box, extent['box'])
                    else:
                        check(len(parts) == 1 and box == [(0, want['elements'])], name, box, extent['box'])
            check(all(len(v) == 1 for v in files.values()) and len(files) == data['used'], name + ': files', files)
            bytes_of = [sum(t['z'] for t in data['tensors'] if t['l'] == k and 'o' not in t) for k in range(len(data['layers']))]
            check(len(page.rows(r'\d+ layers')) == len(data['layers']) + 1, name + ': the table of layers')
            check(sum(bytes_of) == listed['n_bytes'], name + ': bytes', sum(bytes_of))

    def test_tags(self):
        """The table of tags says what `ckpt doctor` says, also of an ill run, whose page ends with its status."""
        run = os.path.join(self.folder, 'run')
        shutil.copytree(self.fixture('z1_bf16_w2_tags/ckpt'), run)
        subprocess.run(['chmod', '-R', 'u+w', run], check=True)
        states = {'whole': 'complete', 'rotten': 'damaged'}

        def compare(page):
            done = subprocess.run([os.path.join(self.bin, 'ckpt'), 'doctor', '--json', run], capture_output=True)
            told, rows = json.loads(done.stdout)['runs'][0], page.rows('oldest first')[1:]
            check(len(rows) == len(told['tags']) == 3, 'tags', rows)
            for row, tag in zip(rows, told['tags']):
                check(row[0] == tag['name'] and row[1] == str(tag['step']) and row[5] == states.get(tag['state'], tag['state']) and
                      ('latest' in row[6].split(', ')) == tag['latest'] and row[7] == tag['reason'], 'a tag', row, tag)
            newest = [r[0] for r in rows if 'newest' in r[6]]
            check(newest == ([told['newest_whole']] if told['newest_whole'] else []), 'the newest', newest)
            check(len([e for e in page.elements if e[0] == 'rect' and e[1].get('class') in ('good', 'bad', 'dim')]) == 3, 'bars')
            return rows

        compare(self.page(run))
        os.remove(os.path.join(run, 'global_step2', 'bf16_zero_pp_rank_1_mp_rank_00_optim_states.pt'))
        page = self.page(run, status=5)
        rows = compare(page)
        check([r[5] for r in rows] == ['complete', 'partial', 'complete'], 'states', rows)
        # one that does not tell its step stands where its name says
        for name in os.listdir(os.path.join(run, 'global_step2')):
            if name.endswith('_model_states.pt'):
                os.truncate(os.path.join(run, 'global_step2', name), 100)
        page = self.page(run, status=3)
        check([(r[0], r[5]) for r in page.rows('oldest first')[2:3]] == [('global_step2', 'damaged')], 'order', page.rows('oldest first'))
        check(any('could not be opened' in t for t in page.texts('p')) and page.data is None, 'no reason is given')
        # and no page for what is no run, or a tag that is not there
        self.ckpt('report', '-o', 'none.html', os.path.join(self.folder, 'nothing'), status=5)
        check(not os.path.exists(os.path.join(self.folder, 'none.html')), 'a page of nothing')

    def test_hostile_names(self):
        """Names of tensors, files and folders that would end the page's elements, or drive what shows them."""
        folder = os.path.join(os.fsencode(self.folder), b'a"<b>&\'\xff\x01')
        os.mkdir(folder)
        names = [n for n in HOSTILE if n] + ['ok.weight']
        path = os.path.join(folder, b'</title><script>x</script>\xfe.safetensors'.replace(b'/', b'|'))
        safetensors(path, [(n, 'F32', [2], b'\0' * 8) for n in names])
        page = self.page(os.fsdecode(path))
        check(len([e for e in page.elements if e[0] == 'script']) == 2, 'scripts')
        check(not [e for e in page.elements if e[0] in ('img', 'b')], 'elements of a name')
        have, shown = [page.name(t) for t in page.data['tensors']], []
        for n in names:
            for hidden in '\n\x07\x1b\u202e\u200b':
                n = n.replace(hidden, ''.join('\\x%02x' % b for b in hidden.encode()))
            shown.append(n)
        check(have == shown, 'names', have, shown)
        layers = [r[0] for r in page.rows('layers')[1:]]
        check(len(layers) == len(page.data['layers']) and layers == page.data['layers'], 'layers', layers)
        check('\\xfe' in page.data['files'][0][0], 'a file name', page.data['files'])
        check('\\xff\\x01' in page.texts('dd')[0], 'the path', page.texts('dd')[0])
        with open(os.path.join(self.folder, 'report.html'), encoding='utf-8') as f:
            text = f.read()
        check(not [c for c in text if (ord(c) < 32 and c != '\n') or 0x7f <= ord(c) < 0xa0 or c in '\u202e\u200b'], 'control characters')
        for picture in 'layers', 'map':
            self.picture(picture, os.fsdecode(path))

    def picture(self, name, *words):
        """One picture as XML without anything from outside; its root."""
        self.ckpt('report', *words, '--svg', name, '-f', '-o', name + '.svg')
        root = xml.etree.ElementTree.parse(os.path.join(self.folder, name + '.svg')).getroot()
        check(root.tag == '{http://www.w3.org/2000/svg}svg', name, root.tag)
        for e in root.iter():
            check(not e.tag.endswith(('}script', '}image', '}use', '}a', '}foreignObject')), name + ' holds', e.tag)
            check(not [k for k in e.attrib if k.endswith('href') or k.startswith('on')], name + ' refers', e.attrib)
        return root

    def test_pictures(self):
        path = self.fixture('z1_bf16_w2_tags/ckpt')
        for name in 'timeline', 'layers', 'map':
            root = self.picture(name, path)
            check(len([e for e in root.iter() if e.tag.endswith('}rect')]) >= 4, name + ' is empty')
            check(root.get('aria-label') and root.get('role') == 'img', name + ' says nothing')

    @staticmethod
    def values(dtype, values):
        code = {'F64': 'd', 'F32': 'f', 'F16': 'e', 'I64': 'q', 'I32': 'i', 'U8': 'B', 'BOOL': '?'}.get(dtype)
        if dtype == 'BF16':
            return b''.join(struct.pack('<f', v)[2:] for v in values)
        return struct.pack('<%d%s' % (len(values), code), *values)

    def test_stats(self):
        """Counts, extremes, mean, norm and histogram as they are computed here, whatever the number of threads."""
        rng = random.Random(5)
        nan, inf = float('nan'), float('inf')
        tensors = {
            'a.f32': ('F32', [rng.gauss(0, 1) for _ in range(70001)] + [nan, inf, -inf, -inf, 0.0, -0.0]),
            'a.f16': ('F16', [rng.choice((0.5, -0.25, 3.0, 0.0)) for _ in range(1000)]),
            'a.bf16': ('BF16', [rng.choice((0.5, -0.25, 3.0, 1024.0)) for _ in range(1000)]),
            'b.far': ('F32', [1000.0 + rng.choice((-0.0625, 0.0625)) for _ in range(200000)]),
            'b.wide': ('F64', [1e300, -1e300, 1e-300, 1e200]),
            'b.i64': ('I64', [rng.randrange(-9, 9) for _ in range(100)]),
            'c.u8': ('U8', [0, 1, 255]), 'c.bool': ('BOOL', [True, False, True]), 'c.none': ('F32', []), 'c.nans': ('F32', [nan, nan]),
        }
        path = os.path.join(self.folder, 'm.safetensors')
        safetensors(path, [(n, d, [len(v)], self.values(d, v)) for n, (d, v) in tensors.items()])
        page, once = self.page(path, '--stats', '-j', '3'), self.page(path, '--stats', '-j', '1')
        check(page.data == once.data, 'threads change the numbers')
        half, exponent = page.data['bins'], page.data['exponent']
        near = lambda a, b: a == b or (a is not None and abs(a - b) <= 1e-8 * max(abs(a), abs(b)))  # noqa: E731
        for t in page.data['tensors']:
            dtype, values = tensors[page.name(t)]
            if dtype == 'F32':
                values = [struct.unpack('<f', struct.pack('<f', v))[0] for v in values]
            finite = [float(v) for v in values if math.isfinite(v)]
            have = t['t']
            check(have[:4] == [sum(v != v for v in values), values.count(inf), values.count(-inf), finite.count(0)], page.name(t), have[:4])
            want = [None] * 5
            if finite:
                mean = math.fsum(finite) / len(finite)
                # 1e300 squared is no double
                up = max(map(abs, finite)) or 1
                want = [min(finite), max(finite), mean, up * math.sqrt(math.fsum(((v - mean) / up) ** 2 for v in finite) / len(finite)),
                        up * math.sqrt(math.fsum((v / up) ** 2 for v in finite))]
            check(all(near(a, b) for a, b in zip(have[4:9], want)), page.name(t), have[4:9], want)
            bins = {}
            for v in finite:
                if v:
                    p = min(max(math.frexp(v)[1] - 1 - exponent, 0), half - 1)
                    k = half + p if v > 0 else half - 1 - p
                    bins[k] = bins.get(k, 0) + 1
            check({have[9] + k: n for k, n in enumerate(have[10]) if n} == bins, page.name(t) + ': bins', have[9:])
        told = json.loads(self.ckpt('report', path, '-f', '--json', '--stats', '-o', 'r.html'))
        check((told['nan'], told['inf']) == (3, 3), 'sums', told)
        # a byte that has changed in a record is found, not counted
        run = os.path.join(self.folder, 'run')
        shutil.copytree(self.fixture('hf_trainer_llama_z3_bf16_w2/ckpt'), run)
        subprocess.run(['chmod', '-R', 'u+w', run], check=True)
        part = os.path.join(run, 'global_step4', 'bf16_zero_pp_rank_1_mp_rank_00_optim_states.pt')
        with open(part, 'r+b') as f:
            data = f.read()
            for k in range(12):
                at = data.find(b'/data/%d' % k)
                if at > 0:
                    f.seek(at + 512)
                    f.write(bytes([data[at + 512] ^ 1]))
        self.ckpt('report', run, '--stats', '-o', 'rotten.html', status=3)
        check(not os.path.exists(os.path.join(self.folder, 'rotten.html')), 'a page of what is rotten')

    def test_differences(self):
        """What differs, and by how much: as `ckpt diff` has it."""
        a, b = (os.path.join(self.folder, n + '.safetensors') for n in 'ab')
        one = self.values('F32', [1.0, 2.0, 3.0, 4.0])
        two = self.values('F32', [1.0, 2.5, 3.0, 3.0])
        safetensors(a, [('h.0.w', 'F32', [4], one), ('h.0.b', 'F32', [4], one), ('h.1.w', 'F32', [4], one), ('h.1.b', 'F32', [2, 2], one),
                        ('h.2.w', 'F32', [4], one), ('<only>.a', 'F32', [4], one)])
        safetensors(b, [('h.0.w', 'F32', [4], one), ('h.0.b', 'F32', [4], two), ('h.1.w', 'F64', [4], self.values('F64', [1, 2, 3, 4])),
                        ('h.1.b', 'F32', [4], one), ('h.2.w', 'F16', [4], self.values('F16', [1, 2, 3, 5])), ('only.b', 'F32', [4], one)])
        page = self.page(a, b)
        told = json.loads(self.ckpt('diff', a, b, '--json', status=1))
        have = {page.name(t): t.get('x') for t in page.data['tensors']}
        check(have == {'h.0.w': None, 'h.0.b': ['values', 2, 1], 'h.1.w': ['dtype', 0, None], 'h.1.b': ['shape', 0, None],
                       'h.2.w': ['dtype and values', 1, 1], '<only>.a': ['only in the first', 0, None]}, 'differences', have)
        check({d['name'] for d in told['differences']} == {n for n in have if have[n]} | {'only.b'}, 'names')
        grid = {r[0]: r[1:] for r in page.rows('Largest absolute')}
        check(grid['Layer'] == ['w', 'b', 'a'], 'columns', grid)
        check(grid['h.0'] == ['=', '1', ''] and grid['h.1'] == ['dtype', 'shape', ''] and grid['<only>'] == ['', '', 'only A'] and
              grid['only'] == ['', 'only B', ''], 'cells', grid)
        check([r[0] for r in page.rows('tensors differ')[1:]] == ['h.0.b', 'h.1.w', 'h.1.b', 'h.2.w', '<only>.a', 'only.b'], 'the list')
        check(any('6 of 7 tensors differ' in t for t in page.texts('p')), 'the sum')
        self.picture('differences', a, b)
        equal = self.page(a, a)
        check(not [t for t in equal.data['tensors'] if 'x' in t] and any('0 of 6' in t for t in equal.texts('p')), 'equal')

    def test_curves(self):
        """Curves of JSON lines and of trainer_state.json; what is no number is refused, what is not finite is named."""
        path = self.fixture('z1_bf16_w2_tags/ckpt')
        lines = os.path.join(self.folder, 'm.jsonl')

        def write(text):
            with open(lines, 'w') as f:
                f.write(text)

        write('{"step": 1, "loss": 2.5, "lr": 0.001, "extra": {"loss": "x", "a": [1, {}]}}\n{"step": 2, "loss": null, "lr": 2e-3, "skipped": true}\n'
              '{"step": 3, "loss": NaN}\n{"step": 3, "evaluation": true, "eval_loss": 2.25}\n{"step": 4, "loss": 1.5, "loss_scale": 65536}\n')
        page = self.page(path, '--metrics', lines)
        rows = {r[0]: r[1:] for r in page.rows('curves in numbers')[1:]}
        check(rows == {'loss': ['4', '2.5', '1.5', '1.5', '2.5', 'steps 2, 3'], 'evaluation loss': ['1', '2.25', '2.25', '2.25', '2.25', ''],
                       'learning rate': ['2', '0.001', '0.002', '0.001', '0.002', ''],
                       'loss scale': ['1', '65536', '65536', '65536', '65536', '']}, 'curves', rows)
        check(len([e for e in page.elements if e[0] == 'rect' and e[1].get('class') == 'gap']) == 2, 'gaps')
        line = [e[1]['d'] for e in page.elements if e[0] == 'path' and e[1].get('class') == 'curve'][0]
        check(line.count('M') == 2 and line.count('L') == 0, 'the line goes over a gap', line)
        check(any('1 updates were skipped' in t for t in page.texts('p')), 'skipped')
        self.picture('curves', path, '--metrics', lines)
        page = self.page(self.fixture('hf_trainer_llama_z3_bf16_w2/ckpt'))
        rows = {r[0]: r[1:3] for r in page.rows('curves in numbers')[1:]}
        check(rows == {'loss': ['4', '3.8938'], 'learning rate': ['4', '0'], 'gradient norm': ['4', '1.04094']}, 'trainer_state.json', rows)
        for text in ('{"step": 1, "loss": "x"}', '{"step": 1, "loss": true}', '{"step": 1, "loss": [1]}', '{"step": 1, "lr": {}}', '{"step": 1, "x": 1}', '',
                     '{"loss": 1}', '{"step": 1.5, "loss": 1}', '{"step": 1, "loss": 1', '{"step": 1, "loss": 01}', '{"step": 1, "loss": +1}',
                     '{"step": 1 "loss": 1}', '[1]', '{"log_history": {}}', '{"log_history": [{"step": 1, "loss": "x"}]}', '{"step": 1, "loss": 1}}',
                     '{"a": "\\x"}', '{"loss": .5, "step": 1}', '{"loss": 1, "step": 1,}', '{"a": ' + '[' * 100, '{"step": 1, "loss": 1e}'):
            write(text)
            if os.path.exists(os.path.join(self.folder, 'none.html')):
                raise Failed('a page was made of the metrics before %r' % text)
            done = subprocess.run([os.path.join(self.bin, 'ckpt'), 'report', path, '--metrics', lines, '-o', 'none.html'], cwd=self.folder,
                                  capture_output=True)
            check(done.returncode in (3, 6) and b'm.jsonl' in done.stderr, 'metrics that are none: ' + text, done.returncode, done.stderr)
        # many points are few in the page
        write(''.join('{"step": %d, "loss": %g}\n' % (i, 5 - i / 1e4) for i in range(30000)))
        self.page(path, '--metrics', lines)
        check(os.path.getsize(os.path.join(self.folder, 'report.html')) < 150000, 'many points are a large page')

    def test_output(self):
        """An input is never written over, nor what is there without --force; what failed leaves nothing."""
        path = os.path.join(self.folder, 'm.safetensors')
        safetensors(path, [('a', 'F32', [2], b'\0' * 8)])
        with open(path, 'rb') as f:
            before = f.read()
        self.ckpt('report', path, '-f', '-o', path, status=2)
        os.link(path, os.path.join(self.folder, 'same'))
        self.ckpt('report', path, '-f', '-o', 'same', status=2)
        self.ckpt('report', path, '-o', 'r.html')
        self.ckpt('report', path, '-o', 'r.html', status=2)
        self.ckpt('report', path, '-f', '-o', 'r.html')
        self.ckpt('report', path, '-f', '-o', '.', status=2)
        with open(path, 'rb') as f:
            check(f.read() == before, 'the input was changed')
        check(not [n for n in os.listdir(self.folder) if n.startswith('.')], 'left behind', os.listdir(self.folder))
        told = json.loads(self.ckpt('report', path, '-f', '--json', '-o', 'r.html'))
        check(told['bytes'] == os.path.getsize(os.path.join(self.folder, 'r.html')) and told['tensors'] == 1, 'json', told)

    def test_many_ranks(self):
        """A thousand ranks and a thousand tensors are a small page."""
        if not self.gen:
            return 'no --gen'
        folder = os.path.join(self.folder, 'many')
        subprocess.run([os.path.abspath(self.gen), '--stage', '3', '--world', '256', '--layers', '83', '--width', '64', '--vocab', '500',
                        '--context', '64', '--sparse', folder], check=True, capture_output=True)
        page = self.page(folder)
        size = os.path.getsize(os.path.join(self.folder, 'report.html'))
        check(page.data['used'] == 256 and len(page.data['tensors']) > 990, 'tensors', len(page.data['tensors']))
        check(all(len(t.get('p', [])) <= 6 and 'm' not in t for t in page.data['tensors']), 'runs are not joined')
        check(size < 1000000, 'the page has bytes', size)
        self.picture('map', folder)
        check(os.path.getsize(os.path.join(self.folder, 'map.svg')) < 1000000, 'the map has bytes')


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('--bin', required=True)
    parser.add_argument('--gen')
    parser.add_argument('fixtures')
    parser.add_argument('cases', nargs='*')
    args = parser.parse_args()
    passed = failed = 0
    for name in sorted(n for n in dir(Tests) if n.startswith('test_')):
        if args.cases and name[5:] not in args.cases:
            continue
        with tempfile.TemporaryDirectory() as folder:
            try:
                skipped = getattr(Tests(args, folder), name)()
                if skipped:
                    print('skipped %s: %s' % (name[5:], skipped))
                passed += not skipped
            except (Failed, ValueError, KeyError, IndexError, xml.etree.ElementTree.ParseError) as e:
                failed += 1
                print('FAILED %s: %s: %s' % (name[5:], type(e).__name__, e))
    print('report: %d passed, %d failed' % (passed, failed))
    return failed > 0


if __name__ == '__main__':
    sys.exit(main())
