#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checkpoints by address: from servers of ours on this machine, whole and with every fault that a server can have.

  run.py --bin build/bin [--some] FIXTURES [CASE...]

Each case is a function named case_*; --some leaves out those that take longer (long_*).  What is read must be what the folder
has, in requests and bytes that are counted; each fault must end in a message that names it, a status that is not 0, and no
output under its final name.
"""
import argparse
import filecmp
import hashlib
import hmac
import json
import os
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import urllib.parse
from xml.sax import saxutils

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from server import Handler, Server, Sparse

ENV = {k: v for k, v in os.environ.items()
       if not re.match(r'(HF_|AWS_|CKPT_|.*_proxy$|SSL_CERT|CURL_CA)', k, re.I)}
ENV.update(CKPT_REMOTE_RETRIES='2', CKPT_REMOTE_TIMEOUT='20', HOME='/nonexistent', LC_ALL='C.UTF-8')


class Case:
    def __init__(self, options, work):
        self.bin, self.fixtures, self.work = os.path.abspath(options.bin), os.path.abspath(options.fixtures), work
        self.said, self.all = [], not options.some

    def check(self, held, text):
        if not held:
            self.said.append(text)

    def run(self, *words, env=None, timeout=120):
        p = subprocess.run([self.bin + '/ckpt', *words], capture_output=True, text=True, errors='replace', timeout=timeout,
                           env={**ENV, **(env or {})}, cwd=self.work, stdin=subprocess.DEVNULL)
        return p.returncode, p.stdout, p.stderr

    def ok(self, *words, env=None):
        rc, out, err = self.run(*words, env=env)
        self.check(rc == 0, '%s: status %d: %s' % (' '.join(words), rc, err))
        return out

    def refused(self, pattern, *words, env=None, status=None):
        """The command fails with a message, and leaves nothing of an output."""
        rc, out, err = self.run(*words, env=env)
        self.check(rc > 0, '%s: status %d, expected a refusal: %s' % (' '.join(words), rc, err))
        self.check(re.search(pattern, err), '%s: expected /%s/, got: %s' % (' '.join(words), pattern, err))
        if status is not None:
            self.check(rc == status, '%s: status %d, expected %d' % (' '.join(words), rc, status))
        self.check(not os.path.exists(self.work + '/out') or not os.listdir(self.work + '/out'),
                   '%s: left %s' % (' '.join(words), os.path.exists(self.work + '/out') and os.listdir(self.work + '/out')))
        return err

    def same(self, a, b):
        """Two files or folders are byte for byte equal."""
        a, b = os.path.join(self.work, a), os.path.join(self.work, b)
        if os.path.isdir(a):
            self.check(sorted(os.listdir(a)) == sorted(os.listdir(b)), '%s %s: other files' % (os.listdir(a), os.listdir(b)))
            for name in os.listdir(a):
                self.same(os.path.join(a, name), os.path.join(b, name))
        else:
            self.check(os.path.exists(b) and filecmp.cmp(a, b, shallow=False), '%s and %s differ' % (a, b))

    def fixture(self, name):
        return os.path.join(self.fixtures, name)


def st_file(tensors, pad=0):
    """A safetensors file: name -> (dtype, shape, bytes); the header is filled up with blanks to pad bytes."""
    header, body = {}, b''
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {'dtype': dtype, 'shape': shape, 'data_offsets': [len(body), len(body) + len(data)]}
        body += data
    text = json.dumps(header).encode()
    text = text.ljust(max(pad, -(-len(text) // 8) * 8))
    return struct.pack('<Q', len(text)) + text + body


def one_file(n=3 << 20):
    """A model of one file that is longer than any block that is kept."""
    data = bytes((i * 7 + i // 251) & 63 for i in range(256)) * (n // 256)
    return st_file({'a.weight': ('U8', [len(data)], data), 'b.bias': ('F32', [2], struct.pack('<2f', 1.5, -2)),
                    'c.weight': ('U8', [n // 2], data[:n // 2])})


# ---- what works ----

def case_folder(c):
    """A folder of Hugging Face: the same listing, the same bytes, few requests."""
    source = c.fixture('hf_bert_sharded')
    with Server().add_folder('/m', source) as s:
        url = s.url + '/m'
        for words in (['ls'], ['ls', '--json'], ['verify'], ['info']):
            here, there = c.ok(*words, source), c.ok(*words, url)
            if words[0] == 'ls':
                c.check(here.replace(source, '') == there.replace(url, ''), '%s: differs: %s' % (words, there))
        c.check(' differ' not in c.ok('diff', url, source), 'diff')
        s.reset()
        c.ok('convert', url, 'there', '--to', 'hf')
        shutil.copytree(source, c.work + '/source')
        os.remove(c.work + '/source/expected.json')  # no server tells of it
        c.ok('convert', 'source', 'here', '--to', 'hf')
        c.same('here', 'there')
        c.check(s.n_requests <= 25, '%d requests: %s' % (s.n_requests, s.paths))
        c.check(max(s.paths.values()) == 1, 'a file was asked for twice: %s' % s.paths)


def case_file(c):
    """One file: listing reads its head alone, converting reads each byte about once."""
    data = one_file()
    with open(c.work + '/m.safetensors', 'wb') as f:
        f.write(data)
    with Server({'/a b/m.safetensors': data}) as s:
        url = s.url + '/a%20b/m.safetensors'
        out = c.ok('ls', url)
        c.check(out == c.ok('ls', 'm.safetensors'), out)
        c.check(s.n_requests == 1 and s.n_bytes <= 65536, '%d requests, %d bytes' % (s.n_requests, s.n_bytes))
        c.check(c.ok('cat', url, 'b.bias') == c.ok('cat', 'm.safetensors', 'b.bias'), 'cat')
        s.reset()
        c.ok('convert', url, 'out/m.pt')
        c.check(s.n_bytes <= len(data) * 1.2 + (1 << 20), '%d bytes of %d' % (s.n_bytes, len(data)))
        c.ok('convert', 'm.safetensors', 'out/here.pt')
        c.check(' differ' not in c.ok('diff', 'out/m.pt', 'm.safetensors'), 'diff')
        # a query names one file, and what is beside it is not asked for
        s.reset()
        c.ok('ls', url + '?sig=a/b')
        c.check(list(s.paths) == ['/a b/m.safetensors'], str(s.paths))


def case_torch(c):
    """An archive has its table at the end, and its records anywhere."""
    source = c.fixture('torch_misc')
    names = [n for n in sorted(os.listdir(source)) if n.endswith('.pt') or n.endswith('.bin')]
    c.check(names, 'no fixtures')
    with Server().add_folder('/t', source) as s:
        for name in names:
            here, there = c.run('ls', '%s/%s' % (source, name)), c.run('ls', '%s/t/%s' % (s.url, name))
            c.check(here[:2] == there[:2], '%s: %s %s' % (name, here, there))


def case_empty_and_page(c):
    """What is not a checkpoint is told as what it is."""
    with Server({'/e.safetensors': b'', '/p.safetensors': b'<!DOCTYPE html><html>log in</html>'}) as s:
        c.refused('empty', 'ls', s.url + '/e.safetensors', status=3)
        c.refused('HTML page', 'ls', s.url + '/p.safetensors', status=3)
        c.refused('not found .404', 'ls', s.url + '/x.safetensors', status=5)
        c.refused('no files were found', 'ls', s.url + '/folder', status=5)


def case_addresses(c):
    """Addresses that are none, commands that take none."""
    c.refused('the address has no host', 'ls', 'https:///x', status=2)
    c.refused('password', 'ls', 'https://me:secret@127.0.0.1/x.pt', status=2)
    c.refused('contains a character that is not allowed', 'ls', 'https://127.0.0.1/a b.pt', status=2)
    c.refused('not a number', 'ls', 'http://127.0.0.1:1/x.pt', env={'CKPT_REMOTE_TIMEOUT': 'soon'}, status=2)
    c.refused('is an address|an address', 'doctor', 'http://127.0.0.1:1/x')
    c.refused('addresses cannot be read: /nowhere.so', 'ls', 'http://127.0.0.1:1/x.pt', env={'CKPT_REMOTE_PLUGIN': '/nowhere.so'}, status=3)
    c.refused('[Cc]onnect', 'ls', 'http://127.0.0.1:1/x.pt', env={'CKPT_REMOTE_RETRIES': '0'}, status=7)
    # without an address the library is not looked at
    c.ok('ls', c.fixture('hf_bert_sharded'), env={'CKPT_REMOTE_PLUGIN': '/nowhere.so'})


def case_big(c):
    """400 GB in 191 shards, simulated: the table costs a request for each shard, and 64 KiB of it."""
    files, weights, total = {}, {}, 0
    for k in range(191):
        name = 'model-%05d-of-00191.safetensors' % (k + 1)
        n = 1 << 29
        header = {}
        for t in range(4):
            key = 'model.layers.%d.t%d.weight' % (k, t)
            header[key] = {'dtype': 'BF16', 'shape': [n // 2048, 1024], 'data_offsets': [t * n, (t + 1) * n]}
            weights[key] = name
        text = json.dumps(header).encode()
        text = text.ljust(-(-len(text) // 8) * 8)
        files['/big/' + name] = Sparse(8 + len(text) + 4 * n, [(0, struct.pack('<Q', len(text)) + text)])
        total += 4 * n
    files['/big/model.safetensors.index.json'] = json.dumps({'metadata': {'total_size': total}, 'weight_map': weights}).encode()
    files['/big/config.json'] = b'{"architectures": ["LlamaForCausalLM"], "model_type": "llama"}'
    c.check(total > 400e9, 'too small')
    with Server(files) as s:
        out = c.ok('ls', s.url + '/big')
        c.check(out.count('.weight') == 764, 'tensors: %d' % out.count('.weight'))
        c.check(s.n_requests <= 191 + 20, '%d requests' % s.n_requests)
        c.check(s.n_bytes <= 211 * 65536, '%d bytes' % s.n_bytes)


COMMIT = '0123456789abcdef0123456789abcdef01234567'


class Hub:
    """The part of a hub that we use: revisions, trees in pages, files behind a redirect, tokens."""

    def __init__(self, source, token=None, page=2):
        self.files, self.token, self.page = {}, token, page
        for at, _, names in os.walk(source):
            for name in names:
                with open(os.path.join(at, name), 'rb') as f:
                    self.files[os.path.relpath(os.path.join(at, name), source)] = f.read()
        self.far = Server({'/blob/' + k: v for k, v in self.files.items()})
        self.near = Server({}, self.answer)
        self.env = {'HF_ENDPOINT': self.near.url + '/'}
        self.commit, self.entries = COMMIT, None

    def list(self):
        return self.entries or [{'type': 'directory', 'path': 'sub', 'oid': '0'}] + [
            {'type': 'file', 'path': k, 'size': len(v), 'oid': 'x'} for k, v in sorted(self.files.items())]

    def json(self, h, value, headers=()):
        h.send(200, json.dumps(value).encode(), [('Content-Type', 'application/json'), *headers])
        return True

    def answer(self, path, n, h):
        if self.token and h.headers.get('Authorization') != 'Bearer ' + self.token:
            h.send(401, b'{"error":"Repository not found"}')
        elif path == '/api/models/me/model/revision/main' or path == '/api/models/me/model/revision/refs/pr/1':
            self.json(h, {'sha': self.commit, 'siblings': [{'rfilename': k} for k in self.files]})
        elif path == '/api/models/me/model/tree/' + COMMIT:
            start, entries = int((re.search('cursor=(\\d+)', h.path) or [0, 0])[1]), self.list()
            more = '<%s%s?recursive=1&cursor=%d>; rel="next"' % (self.near.url, path, start + self.page)
            self.json(h, entries[start:start + self.page], [('Link', more)] if start + self.page < len(entries) else [])
        elif path.startswith('/me/model/resolve/%s/' % COMMIT):
            name = path.split('/', 5)[5]
            if name.endswith('.json'):
                h.give(self.files[name])
            else:
                h.send(302, b'Found', [('Location', self.far.url + '/blob/' + name.replace(' ', '%20'))])
        else:
            return False
        return True

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.near.close()
        self.far.close()


def case_hub(c):
    """A repository of the hub: of one commit, listed in pages, weights behind redirects, the token for the hub alone."""
    source = c.work + '/source'
    shutil.copytree(c.fixture('hf_bert_sharded'), source)
    os.makedirs(source + '/sub')
    shutil.copy(source + '/model-00001-of-00003.safetensors', source + '/sub/a b.safetensors')
    with Hub(source, token='hf_secret') as hub:
        env = {**hub.env, 'HF_TOKEN': 'hf_secret'}
        c.check(c.ok('ls', 'hf://me/model', env=env) == c.ok('ls', source), 'ls differs')
        c.check(all('Authorization' not in h for _, h in hub.far.headers), 'the token went to the other host')
        c.check(hub.near.n_requests <= 14, '%d requests: %s' % (hub.near.n_requests, hub.near.paths))
        c.ok('convert', 'hf://me/model@main/', 'there', '--to', 'hf', env=env)
        c.ok('convert', source, 'here', '--to', 'hf')
        c.same('here', 'there')
        c.ok('verify', 'hf://me/model@refs%2Fpr%2F1', env=env)
        c.check(c.ok('ls', 'hf://me/model/sub/a b.safetensors', env=env) == c.ok('ls', source + '/sub/a b.safetensors'), 'file')
        c.refused('no such file among', 'ls', 'hf://me/model/sub/c.safetensors', env=env, status=5)
        c.refused('not found .404', 'ls', 'hf://me/model@other', env=env, status=5)
        # where huggingface-cli leaves the token
        os.makedirs(c.work + '/home/.cache/huggingface')
        for path, more in (('home/.cache/huggingface/token', {'HOME': c.work + '/home'}), ('token', {'HF_HOME': c.work}),
                           ('my', {'HF_TOKEN_PATH': c.work + '/my'})):
            with open(c.work + '/' + path, 'w') as f:
                f.write('hf_secret\n')
            c.ok('ls', 'hf://me/model', env={**hub.env, **more})
        err = c.refused(r'refuses it \(401.*set HF_TOKEN', 'ls', 'hf://me/model', env=hub.env, status=7)
        err += c.refused('accept the model', 'ls', 'hf://me/model', env={**hub.env, 'HF_TOKEN': 'hf_wrong'}, status=7)
        c.check('hf_wrong' not in err, 'the token is shown')


def case_hub_faults(c):
    """Listings that would lead elsewhere, or are none."""
    source = c.fixture('hf_bert_sharded')
    for word in ('hf://', 'hf://a/', 'hf:///b', 'hf://a/b@', 'hf://a b/c', 'hf://../x', 'hf://a@b/c'):
        c.refused('expected hf://', 'ls', word, status=2)
    with Hub(source) as hub:
        for name in ('../x', 'a/../b', '/etc/passwd', 'a//b', 'a\x1b[2J', '', 'a\\b', 'x' * 2000):
            hub.entries = [{'type': 'file', 'path': name, 'size': 1}]
            c.refused('not a plain path', 'ls', 'hf://me/model', env=hub.env, status=4)
        for entry in ({'type': 'file', 'path': 'a'}, {'type': 'file', 'size': 1}, {'type': 'file', 'path': 'a', 'size': -1},
                      {'type': 'file', 'path': 'a', 'size': 'big'}, {'type': 'file', 'path': 'a', 'size': 1.5}, 7):
            hub.entries = [entry]
            c.refused('without path or size', 'ls', 'hf://me/model', env=hub.env, status=3)
        hub.entries = None
        hub.commit = '../../etc'
        c.refused('does not contain a commit', 'ls', 'hf://me/model', env=hub.env, status=3)
        hub.commit, json_of = COMMIT, hub.json
        hub.json = lambda h, v, headers=(): h.send(200, b'{"sha": ') or True
        c.refused('hf://me/model', 'ls', 'hf://me/model', env=hub.env, status=3)
        hub.json = lambda h, v, headers=(): json_of(h, v, [('Link', '<http://127.0.0.2:1/>; rel="next"')])
        c.refused('another host', 'ls', 'hf://me/model', env=hub.env, status=4)
        hub.json = lambda h, v, headers=(): h.send(200, b'', [('Content-Length', str(10 ** 12))]) or True
        c.refused('at most', 'ls', 'hf://me/model', env=hub.env, status=6)


class Storage:
    """A bucket: listings in pages, every request's signature computed again (AWS Signature Version 4)."""

    ID, SECRET, TOKEN, REGION = 'AKIDEXAMPLE', 'wJalrXUtnFEMI/K7MDENG+bPxRfiCY', 'session/token==', 'eu-test-1'

    def __init__(self, files, public=False, page=2):
        self.files, self.public, self.page, self.wrong, self.signed = files, public, page, [], 0
        self.list = self.listing
        self.server = Server({}, self.answer)
        self.env = {'AWS_ENDPOINT_URL_S3': self.server.url, 'AWS_REGION': self.REGION}
        self.key = {'AWS_ACCESS_KEY_ID': self.ID, 'AWS_SECRET_ACCESS_KEY': self.SECRET, 'AWS_SESSION_TOKEN': self.TOKEN}

    def signature_holds(self, h):
        m = re.fullmatch(r'AWS4-HMAC-SHA256 Credential=([^/]+)/(\d{8})/([^/]+)/s3/aws4_request, *SignedHeaders=([^,]+), *'
                         r'Signature=([0-9a-f]{64})', h.headers.get('Authorization', ''))
        if not m or m.group(1) != self.ID or m.group(3) != self.REGION or h.headers.get('x-amz-security-token') != self.TOKEN:
            return 'no signature of ours: %s' % h.headers.get('Authorization')
        path, _, query = h.path.partition('?')
        names = m.group(4).split(';')
        # S3 refuses requests that lack one of these
        needed = {'host', 'x-amz-content-sha256', 'x-amz-date', 'x-amz-security-token'}
        if not needed <= set(names) or names != sorted(names):
            return 'signed headers: %s' % names
        lines = ''.join('%s:%s\n' % (n, ' '.join(h.headers[n].split())) for n in names)
        body = hashlib.sha256(b'').hexdigest()
        if h.headers.get_all('x-amz-content-sha256') != [body]:
            return 'hash of the body: %s' % h.headers.get_all('x-amz-content-sha256')
        if not query == '&'.join(sorted(query.split('&'))):
            return 'query: %s' % query
        canonical = '\n'.join(['GET', path, query, lines, m.group(4), body])
        scope = '%s/%s/s3/aws4_request' % (m.group(2), self.REGION)
        text = '\n'.join(['AWS4-HMAC-SHA256', h.headers['x-amz-date'], scope, hashlib.sha256(canonical.encode()).hexdigest()])
        key = ('AWS4' + self.SECRET).encode()
        for part in (m.group(2), self.REGION, 's3', 'aws4_request', text):
            key = hmac.new(key, part.encode(), hashlib.sha256).digest()
        return None if key.hex() == m.group(5) else 'another signature, of %r' % canonical

    def listing(self, prefix, token):
        names = sorted(n for n in self.files if n.startswith(prefix))
        start = int(token or 0)
        more = start + self.page < len(names)
        entries = ''.join('<Contents><Key>%s</Key><Owner><ID>x</ID></Owner><Size>%d</Size></Contents>' %
                          (saxutils.escape(n), len(self.files[n])) for n in names[start:start + self.page])
        return ('<?xml version="1.0" encoding="UTF-8"?>\n<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">'
                '<Name>b</Name><Prefix>%s</Prefix><IsTruncated>%s</IsTruncated>%s%s</ListBucketResult>' %
                (saxutils.escape(prefix), str(more).lower(), entries,
                 '<NextContinuationToken>%d</NextContinuationToken>' % (start + self.page) if more else ''))

    def answer(self, path, n, h):
        if not self.public:
            why = self.signature_holds(h)
            if why:
                self.wrong.append(why)
                h.send(403, b'<Error><Code>SignatureDoesNotMatch</Code></Error>')
                return True
            self.signed += 1
        if path == '/my-bucket/' and '?' in h.path:
            query = dict(urllib.parse.parse_qsl(h.path.partition('?')[2]))
            h.send(200, self.list(query.get('prefix', ''), query.get('continuation-token')).encode())
        elif path.startswith('/my-bucket/') and path[11:] in self.files:
            h.give(self.files[path[11:]])
        else:
            h.send(404, b'<Error><Code>NoSuchKey</Code></Error>')
        return True

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.server.close()


def folder_files(source, prefix=''):
    files = {}
    for at, _, names in os.walk(source):
        for name in names:
            with open(os.path.join(at, name), 'rb') as f:
                files[prefix + os.path.relpath(os.path.join(at, name), source)] = f.read()
    return files


def case_storage(c):
    """A bucket: every request is signed, listings go on, a run of DeepSpeed is read as from its folder."""
    model, run = c.fixture('hf_bert_sharded'), c.fixture('z1_bf16_w3_groups')
    files = {**folder_files(model, 'my models/b+ert & co/'), **folder_files(run, 'run/')}
    files['my models/b+ert & co/'] = b''  # stands for the folder
    files['my models/b+ert & co-2/model.safetensors'] = b'of somebody else'
    with Storage(files) as s:
        env, url = {**s.env, **s.key}, 's3://my-bucket/my models/b+ert & co'
        c.check(c.ok('ls', url, env=env) == c.ok('ls', model), 'ls')
        c.ok('convert', url + '/', 'there', '--to', 'hf', env=env)
        c.ok('convert', model, 'here', '--to', 'hf')
        c.same('here', 'there')
        one = url + '/model-00001-of-00003.safetensors'
        c.check(c.ok('ls', one, env=env) == c.ok('ls', model + '/model-00001-of-00003.safetensors'), 'file')
        tag = [n for n in sorted(os.listdir(run)) if os.path.isdir(run + '/' + n)][0]
        c.check(' differ' not in c.ok('diff', '--with-optimizer', 's3://my-bucket/run/' + tag, run + '/' + tag, env=env), 'run')
        c.ok('reshard', 's3://my-bucket/run/' + tag, 'there2', '--world', '2', env=env)
        c.ok('reshard', run + '/' + tag, 'here2', '--world', '2')
        c.check(' differ' not in c.ok('diff', '--with-optimizer', 'here2', 'there2'), 'reshard')
        c.check(not s.wrong and s.signed > 20, '%d signed, wrong: %s' % (s.signed, s.wrong[:2]))
        c.refused('refuses it .403.*does not allow it.*SignatureDoesNotMatch', 'ls', url,
                  env={**env, 'AWS_SECRET_ACCESS_KEY': 'other'}, status=7)
        c.refused('refuses it .403.*set AWS_ACCESS_KEY_ID', 'ls', url, env=s.env, status=7)
        c.refused('only one of AWS_ACCESS_KEY_ID', 'ls', url, env={**s.env, 'AWS_ACCESS_KEY_ID': 'x'}, status=2)
        c.refused('no files were found', 'ls', 's3://my-bucket/nothing', env=env, status=5)
        c.refused('not found .404', 'ls', 's3://my-bucket/nothing.pt', env=env, status=5)
    with Storage(files, public=True) as s:
        c.check(c.ok('ls', 's3://my-bucket/my models/b+ert & co', env=s.env) == c.ok('ls', model), 'without a key')
    for word in ('s3://', 's3:///x', 's3://A_B/x', 's3://b//x'):
        c.refused('expected s3://', 'ls', word, status=2)


def case_storage_faults(c):
    """Listings that are none, contradict themselves, or never end."""
    entry = '<Contents><Key>k</Key><Size>1</Size></Contents>'
    bad = {
        'more pages, but no valid continuation token': ['<IsTruncated>true</IsTruncated>' + entry],
        'neither true nor false': ['<IsTruncated>maybe</IsTruncated>', '<IsTruncated><a/></IsTruncated>'],
        'exactly one key and one size': ['<Contents><Key>k</Key></Contents>', '<Contents><Size>1</Size></Contents>', '<Contents/>',
                                         '<Contents><Key>a</Key><Key>b</Key><Size>1</Size></Contents>',
                                         '<Key>k</Key><Contents><Size>1</Size></Contents>'],
        'size is not a number': ['<Contents><Key>k</Key><Size>%s</Size></Contents>' % n for n in ('-1', '', '1e3', '9' * 19, '0x1')],
        'not a plain path': ['<Contents><Key>%s</Key><Size>1</Size></Contents>' % n for n in ('../x', 'a//b', '/x', '&#27;[2J')],
        'not text': ['<Contents><Key><b/></Key><Size>1</Size></Contents>'],
        'byte .* of its XML': ['<Contents>', '<a></b>', '&lol;', '<a b></a>', '<a b="></a>', '&#0;', '&#xd800;', '<!ENTITY a "b">',
                               '<![CDATA[', '<!--', '</ListBucketResult><x/>'],
        'are nested deeper than': ['<a>' * 20],
    }
    with Storage({}, public=True) as s:
        for pattern, bodies in bad.items():
            for body in bodies:
                s.list = lambda prefix, token: '<ListBucketResult>%s</ListBucketResult>' % body
                c.refused(pattern, 'ls', 's3://my-bucket/', env=s.env)
        s.list = lambda prefix, token: '<html/>'
        c.refused('a root element other than', 'ls', 's3://my-bucket', env=s.env, status=3)
        s.list = lambda prefix, token: ('<ListBucketResult>%s<NextContinuationToken>x</NextContinuationToken></ListBucketResult>'
                                        % entry)
        c.refused('more pages, but no valid continuation token', 'ls', 's3://my-bucket', env=s.env, status=3)
        s.list = lambda prefix, token: '<!DOCTYPE a [<!ENTITY b "c">]><ListBucketResult/>'
        c.refused('a document type declaration', 'ls', 's3://my-bucket', env=s.env, status=3)


# ---- servers with faults ----

def faulty(c, pattern, fault, words=('convert',), status=None, env=None, data=None):
    """Convert a file from a server with a fault: refused, and nothing is left."""
    with Server({'/m.safetensors': data or one_file()}, fault) as s:
        return c.refused(pattern, 'convert', s.url + '/m.safetensors', 'out/m.pt', status=status, env=env), s


def case_no_ranges(c):
    """Without ranges a small file is read, a large one is not."""
    def whole(path, n, h):
        h.headers.replace_header('Range', '') if h.headers.get('Range') else None
        return False
    err, s = faulty(c, 'whole files only, not ranges', whole, status=3)
    c.check(s.n_requests == 1, '%d requests' % s.n_requests)
    with Server().add_folder('/m', c.fixture('hf_bert_sharded')) as s:
        s.fault = whole
        c.ok('verify', s.url + '/m')


def answer(h, first, last, total, body, length=None, etag='"x"'):
    h.send(206, body, [('ETag', etag), ('Content-Range', 'bytes %d-%d/%d' % (first, last, total)),
                       ('Content-Length', str(len(body) if length is None else length))])
    if length is not None and length != len(body):
        h.cut()
    return True


def case_lies(c):
    """Lengths and ranges that do not fit together, at the first answer or a later one."""
    data = one_file()
    size = len(data)

    def at(k, make):
        def fault(path, n, h):
            first, last = h.range_of(size)
            if n < k:
                return answer(h, first, last, size, data[first:last + 1])
            return make(h, first, last)
        return fault
    for k in (0, 1):
        faulty(c, 'requested bytes', at(k, lambda h, a, b: answer(h, a + 1, b, size, data[a + 1:b + 1])), status=7)
        faulty(c, 'requested bytes', at(k, lambda h, a, b: answer(h, a, b - 1, size, data[a:b])), status=7)
        faulty(c, 'announces', at(k, lambda h, a, b: answer(h, a, b, size, data[a:b], length=b - a)), status=7)
        faulty(c, 'announces', at(k, lambda h, a, b: answer(h, a, b, size, data[a:b + 1] + b'x', length=b - a + 2)), status=7)
        faulty(c, 'without a valid Content-Range', at(k, lambda h, a, b: h.send(206, data[a:b + 1]) or True), status=3)
        faulty(c, 'without a valid Content-Range', at(k, lambda h, a, b: h.send(
            206, data[a:b + 1], [('Content-Range', 'bytes %d-%d/*' % (a, b))]) or True), status=3)
        faulty(c, 'without a valid Content-Range', at(k, lambda h, a, b: h.send(
            206, data[a:b + 1], [('Content-Range', 'bytes 9%d-%d/%d' % (10 ** 20, b, size))]) or True), status=3)
        faulty(c, 'encoded', at(k, lambda h, a, b: h.send(206, data[a:b + 1], [
            ('Content-Encoding', 'gzip'), ('Content-Range', 'bytes %d-%d/%d' % (a, b, size))]) or True), status=3)
    faulty(c, 'changed while being read', at(1, lambda h, a, b: answer(h, a, b, size + 1, data[a:b + 1])), status=7)


def case_changed(c):
    """The file changes between two answers: never bytes of both."""
    data = one_file()

    def etag(path, n, h):
        h.give(data, '"%d"' % (n > 1))
        return True

    def weak(path, n, h):
        # a server that minds no condition
        h.headers['If-Match'] = ''
        h.headers.replace_header('If-Match', 'W/"%d"' % (n > 1))
        del h.headers['If-Match']
        h.give(data, 'W/"%d"' % (n > 1))
        return True

    def date(path, n, h):
        first, last = h.range_of(len(data))
        h.send(206, data[first:last + 1], [('Content-Range', 'bytes %d-%d/%d' % (first, last, len(data))),
                                           ('Last-Modified', 'Mon, 0%d Jan 2024 00:00:00 GMT' % (1 + (n > 1)))])
        return True
    for fault in (etag, weak, date):
        faulty(c, 'changed while being read', fault, status=7)


def case_cut(c):
    """Connections that end early: a few are made good, endless ones are given up."""
    data = one_file()
    with open(c.work + '/m.safetensors', 'wb') as f:
        f.write(data)

    def cut(often):
        left = [often]

        def fault(path, n, h):
            first, last = h.range_of(len(data))
            if left[0] == 0 or last - first < 1000:
                return False
            left[0] -= 1
            body = data[first:last + 1]
            h.send_response(206)
            for name, value in (('ETag', '"x"'), ('Content-Range', 'bytes %d-%d/%d' % (first, last, len(data))),
                                ('Content-Length', str(len(body)))):
                h.send_header(name, value)
            h.end_headers()
            h.wfile.write(body[:len(body) // 3])
            h.cut()
            return True
        return fault

    def same(path, n, h):
        h.give(data, '"x"')
        return True
    with Server({}, None) as s:
        f = cut(2)
        s.fault = lambda path, n, h: f(path, n, h) or same(path, n, h)
        c.ok('convert', s.url + '/m.safetensors', 'good/m.safetensors')
        c.check(' differ' not in c.ok('diff', 'good/m.safetensors', 'm.safetensors'), 'diff')
    # nothing at all comes
    err, s = faulty(c, '3 tries', lambda path, n, h: h.cut() or True, status=7)
    c.check(s.n_requests == 3, '%d requests' % s.n_requests)


def case_slow(c):
    """A server that says nothing more is not waited for without end."""
    hold = threading.Event()

    def silent(path, n, h):
        hold.wait(100)
        return True

    def half(path, n, h):
        h.send_response(206)
        h.send_header('Content-Range', 'bytes 0-65535/%d' % len(one_file()))
        h.send_header('Content-Length', '65536')
        h.end_headers()
        h.wfile.write(b'x' * 100)
        h.wfile.flush()
        hold.wait(100)
        return True
    for fault in (silent, half) if c.all else (half,):
        try:
            faulty(c, 'too slow|[Tt]ime', fault, env={'CKPT_REMOTE_TIMEOUT': '1', 'CKPT_REMOTE_RETRIES': '0'}, status=7)
        finally:
            hold.set()
        hold.clear()


def case_busy(c):
    """429 and 5xx pass; Retry-After is minded within reason."""
    for status in (429, 500, 502, 503, 504):
        with Server({'/m.safetensors': one_file()}) as s:
            s.fault = lambda path, n, h: n == 0 and (h.send(status, b'busy', [('Retry-After', '0')]) or True)
            c.ok('ls', s.url + '/m.safetensors')
            c.check(s.n_requests == 2, '%d requests' % s.n_requests)
    err, s = faulty(c, 'status 503.*3 tries', lambda p, n, h: h.send(503) or True, status=7)
    c.check(s.n_requests == 3, '%d requests' % s.n_requests)
    faulty(c, 'asks to wait for 86400 s', lambda p, n, h: h.send(429, b'', [('Retry-After', '86400')]) or True, status=7)


def case_refused(c):
    """401 and 403 are errors that say what to do, never a file that is not there."""
    source = c.fixture('hf_bert_sharded')
    for status in (401, 403):
        faulty(c, r'refuses it \(%d.*CKPT_HTTP_HEADER.*no entry' % status,
               lambda p, n, h: h.send(status, b'no entry') or True, status=7)
        with Server().add_folder('/m', source) as s:
            s.fault = lambda p, n, h: p.endswith('/config.json') and (h.send(status) or True)
            c.refused('config.json: the server refuses', 'convert', s.url + '/m', 'out', '--to', 'hf', status=7)
    with Server({'/m.safetensors': one_file()}) as s:
        s.fault = lambda p, n, h: h.headers.get('Authorization') != 'Bearer me' and (h.send(401) or True)
        c.ok('ls', s.url + '/m.safetensors', env={'CKPT_HTTP_HEADER': 'Authorization: Bearer me'})
    faulty(c, 'status 400.*what is this', lambda p, n, h: h.send(400, b'what is this?' + b'x' * 100000) or True, status=7)


def case_redirects(c):
    """Followed ten times, never from https to http, and the key stays with its host."""
    data = one_file()
    faulty(c, 'more than 10 redirects', lambda p, n, h: h.send(302, b'', [('Location', '/m.safetensors?%d' % n)]) or True,
           status=7)
    faulty(c, '[Pp]rotocol|status 302', lambda p, n, h: h.send(302, b'', [('Location', 'file:///etc/passwd')]) or True)
    with Server({'/x/m.safetensors': data}) as far, Server() as near:
        near.fault = lambda p, n, h: h.send(302, b'moved', [('Location', far.url + '/x/m.safetensors')]) or True
        c.ok('verify', near.url + '/m.safetensors', env={'CKPT_HTTP_HEADER': 'Authorization: Bearer me'})
        c.check(all(h.get('Authorization') == 'Bearer me' for _, h in near.headers), 'the key was not shown')
        c.check(far.headers and not any('Authorization' in h for _, h in far.headers), 'the key went to another host')
        c.check(near.n_requests < far.n_requests or far.n_requests == 1, 'the place was not remembered')
    # a place that was led to is good for some time only: then the first one is asked again
    with Server() as far, Server() as near:
        near.fault = lambda p, n, h: h.send(307, b'', [('Location', '%s/%d' % (far.url, n))]) or True
        far.fault = lambda p, n, h: (h.give(data) if n == 0 else h.send(403)) or True
        c.ok('verify', near.url + '/m.safetensors')


def endless(status, chunk, headers=()):
    """An answer whose body does not end."""
    def fault(p, n, h):
        h.send(status, b'', [('Transfer-Encoding', 'chunked'), *headers])
        try:
            while True:
                h.wfile.write(b'%x\r\n%s\r\n' % (len(chunk), chunk))
                time.sleep(.0005)
        except OSError:
            h.close_connection = True
        return True
    return fault


def case_endless(c):
    """Bodies that nobody needs are not read to their end, which may never come."""
    quick = {'CKPT_REMOTE_RETRIES': '0'}
    for status, pattern in ((203, 'status 203'), (404, 'not found'), (403, 'refuses'), (500, 'status 500')):
        for chunk in (b'x' * 4096, b' \n' * 2048):
            start = time.monotonic()
            faulty(c, pattern, endless(status, chunk), env=quick)
            c.check(time.monotonic() - start < 15, '%d took %.0f s' % (status, time.monotonic() - start))
    # a redirect is followed all the same, also one that is relative
    with Server({'/y/m.safetensors': one_file()}) as s:
        far = endless(302, b'x' * 4096, [('Location', '../y/m.safetensors')])
        s.fault = lambda p, n, h: p.startswith('/x/') and far(p, n, h)
        c.ok('ls', s.url + '/x/m.safetensors')


def drip(before, rest, pause):
    """Bytes at once, then one by one."""
    def fault(p, n, h):
        h.wfile.write(before)
        h.close_connection = True
        try:
            for k in range(len(rest)):
                h.wfile.write(rest[k:k + 1])
                time.sleep(pause)
        except OSError:
            pass
        return True
    return fault


def case_slow(c):
    """A server that sends a byte now and then is given up, in headers and in bodies."""
    data, env = one_file(), {'CKPT_REMOTE_RETRIES': '0', 'CKPT_REMOTE_TIMEOUT': '1'}
    head = b'HTTP/1.1 206 OK\r\nContent-Range: bytes 0-65535/%d\r\nContent-Length: 65536\r\n\r\n' % len(data)
    for fault in (drip(head, data[:65536], .1), drip(b'HTTP/1.1 206 OK\r\nX: ', b'y' * 65536, .1)):
        start = time.monotonic()
        faulty(c, 'too slow|do not end', fault, env=env, status=7)
        c.check(time.monotonic() - start < 30, 'took %.0f s' % (time.monotonic() - start))


def shards(n):
    names = ['m-%05d-of-%05d.safetensors' % (i + 1, n) for i in range(n)]
    files = {'/m/' + name: st_file({'t%d' % i: ('F32', [1], bytes(4))}) for i, name in enumerate(names)}
    index = {'weight_map': {'t%d' % i: name for i, name in enumerate(names)}}
    files['/m/model.safetensors.index.json'] = json.dumps(index).encode()
    return files


def case_dead_shards(c):
    """The first shard that cannot be fetched ends the opening; the others are not waited for one after the other."""
    with Server(shards(256)) as s:
        s.fault = lambda p, n, h: '-of-' in p and (time.sleep(60) or True)
        start = time.monotonic()
        c.refused('-of-00256.safetensors: ', 'ls', s.url + '/m', status=7,
                  env={'CKPT_REMOTE_RETRIES': '0', 'CKPT_REMOTE_TIMEOUT': '1'})
        c.check(time.monotonic() - start < 30, 'took %.0f s' % (time.monotonic() - start))
        c.check(sum('-of-' in p for p in s.paths) <= 32, 'asked for %d of them' % len(s.paths))


def long_opening(c):
    """An opening that takes long is told, and takes no longer than its budget."""
    env = {'CKPT_REMOTE_RETRIES': '0', 'CKPT_REMOTE_TIMEOUT': '1'}
    with Server(shards(512)) as s:
        s.fault = lambda p, n, h: '-of-' in p and time.sleep(.7)
        rc, _, err = c.run('ls', s.url + '/m', env=env)
        c.check(rc == 6 and 'CKPT_REMOTE_TIMEOUT' in err, 'status %d: %s' % (rc, err))
        c.check(re.search(r'opening: \d+ of 512 files', err), 'not told: %s' % err)


def case_index(c):
    """An index of many names takes time in proportion."""
    files = shards(4096)
    index = json.loads(files['/m/model.safetensors.index.json'])
    index['weight_map'].update(('u%d' % i, 'm-00001-of-04096.safetensors') for i in range(150000))
    with Server({'/m/model.safetensors.index.json': json.dumps(index).encode()}) as s:
        start = os.times()
        c.refused('is missing, but', 'ls', s.url + '/m', status=5)
        took = sum(os.times()[2:4]) - sum(start[2:4])
        c.check(took < 2, 'took %.1f s of the processor' % took)


def case_header(c):
    """CKPT_HTTP_HEADER is for one host: the first address's, or the one that it names."""
    data = one_file()
    with Server({'/m.safetensors': data}) as a, Server({'/m.safetensors': data}) as b:
        def shown(said):
            a.reset(), b.reset()
            c.ok('diff', a.url + '/m.safetensors', b.url + '/m.safetensors', env={'CKPT_HTTP_HEADER': said})
            return [any('Authorization' in h for _, h in s.headers) for s in (a, b)]
        for said, expected in (('Authorization: Bearer me', [True, False]), (b.url + ' Authorization: Bearer me', [False, True]),
                               ('https://elsewhere Authorization: Bearer me', [False, False])):
            c.check(shown(said) == expected, '%s: %s' % (said, shown(said)))
        b.fault = lambda p, n, h: h.send(401) or True
        c.refused('is of another host.*https://HOST Name: value', 'diff', a.url + '/m.safetensors', b.url + '/m.safetensors',
                  env={'CKPT_HTTP_HEADER': 'Authorization: Bearer me'}, status=7)
    for said in ('no line', 'https://host', 'https://host name', 'two words: x'):
        c.refused('CKPT_HTTP_HEADER is not a line', 'ls', 'http://127.0.0.1:1/x.pt', env={'CKPT_HTTP_HEADER': said}, status=2)
    # away and back again: the other host has chosen what is asked for
    with Server({'/secret.safetensors': data}) as near, Server() as far:
        far.fault = lambda p, n, h: h.send(302, b'', [('Location', near.url + '/secret.safetensors')]) or True
        near.fault = lambda p, n, h: p != '/secret.safetensors' and (h.send(302, b'', [('Location', far.url + '/x')]) or True)
        c.ok('verify', near.url + '/m.safetensors', env={'CKPT_HTTP_HEADER': 'Authorization: Bearer me'})
        c.check(not any('Authorization' in h for p, h in near.headers if 'secret' in p), 'the key came back')


def bare(data):
    """A range without ETag and Last-Modified."""
    def fault(p, n, h):
        first, last = h.range_of(len(data))
        h.send(206, data[first:last + 1], [('Content-Range', 'bytes %d-%d/%d' % (first, last, len(data)))])
        return True
    return fault


def case_unmarked(c):
    """A server that does not say which state of a file it sends: a warning, refused by --strict."""
    data = one_file()
    with Server({}, bare(data)) as s:
        url = s.url + '/m.safetensors'
        rc, _, err = c.run('convert', url, 'out/m.pt')
        c.check(rc == 0 and 'neither ETag nor Last-Modified' in err, 'status %d: %s' % (rc, err))
        c.check('neither ETag' in c.run('verify', url)[1], 'verify does not warn')
        shutil.rmtree(c.work + '/out')
        c.refused('neither ETag.*\n.*--strict', 'convert', '--strict', url, 'out/m.pt', status=9)
        c.refused(r'neither ETag[\s\S]*--strict', 'merge', '--strict', url, url, '-o', 'out/m.safetensors', status=9)
    with Server({}, lambda p, n, h: bare(data if n < 2 else data + b'x')(p, n, h)) as s:
        c.refused('changed while being read', 'convert', s.url + '/m.safetensors', 'out/m.pt', status=7)
    # one answer has brought it all: there is nothing to mix
    with Server({}, bare(st_file({'w': ('F32', [1], bytes(4))}))) as s:
        c.check('neither' not in c.run('ls', s.url + '/m.safetensors')[2], 'a warning without a reason')


def case_no_host(c):
    """A name that cannot be resolved is told in the transport's words, after all tries too."""
    for address in ('http://no-such-host.invalid/m.safetensors', 'https://no-such-host.invalid/m/', 's3://bucket/m'):
        c.refused('[Rr]esolv', 'ls', address, status=7, env={'CKPT_REMOTE_RETRIES': '1', 'CKPT_REMOTE_TIMEOUT': '5',
                                                            'AWS_ENDPOINT_URL': 'http://no-such-host.invalid'})


def case_tls(c):
    """A certificate that nobody vouches for is refused; one that the user names is not."""
    import ssl
    made = subprocess.run(['openssl', 'req', '-x509', '-newkey', 'rsa:2048', '-nodes', '-keyout', 'key.pem', '-out', 'cert.pem',
                           '-days', '3650', '-subj', '/CN=localhost', '-addext', 'subjectAltName=IP:127.0.0.1'],
                          cwd=c.work, capture_output=True) if shutil.which('openssl') else None
    if made is None or made.returncode != 0:
        print('skipped tls: the openssl command is not there or makes no certificate')
        return
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(c.work + '/cert.pem', c.work + '/key.pem')
    with Server({'/m.safetensors': one_file()}, tls=tls) as s:
        c.refused('certificate', 'ls', s.url + '/m.safetensors', status=7)
        c.ok('ls', s.url + '/m.safetensors', env={'SSL_CERT_FILE': c.work + '/cert.pem'})
        with Server({'/m.safetensors': one_file()}) as plain:
            s.fault = lambda p, n, h: h.send(302, b'', [('Location', plain.url + '/m.safetensors')]) or True
            c.refused('from https to http', 'ls', s.url + '/m.safetensors',
                      env={'SSL_CERT_FILE': c.work + '/cert.pem'}, status=4)
            c.check(plain.n_requests == 0, 'it was followed')


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--bin', required=True)
    parser.add_argument('--some', action='store_true')
    parser.add_argument('--times', action='store_true', help='print what each case takes')
    parser.add_argument('fixtures')
    parser.add_argument('case', nargs='*')
    options = parser.parse_args()
    if not os.path.exists(os.path.join(options.bin, '../lib/libckpt-remote.so')):
        print('skipped: built without libckpt-remote.so (no libcurl)\n0 passed, 0 failed')
        return 0
    kinds = ('case_',) if options.some else ('case_', 'long_')
    cases = [(name.split('_', 1)[1], fn) for name, fn in globals().items() if name.startswith(kinds)]
    passed = failed = 0
    for name, fn in cases:
        if options.case and name not in options.case:
            continue
        with tempfile.TemporaryDirectory() as work:
            c = Case(options, work)
            start = time.monotonic()
            try:
                fn(c)
            except Exception:  # what was found before it says more
                c.said.append(traceback.format_exc())
            if options.times:
                print('%6.1f s  %s' % (time.monotonic() - start, name))
            if c.said:
                print('FAIL %s:\n  %s' % (name, '\n  '.join(c.said)))
            passed, failed = passed + (not c.said), failed + bool(c.said)
    print('remote: %d passed, %d failed' % (passed, failed))
    return 1 if failed else 0


if __name__ == '__main__':
    sys.exit(main())
