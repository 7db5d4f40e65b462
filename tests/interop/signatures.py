#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Signatures of models: the package model-signing accepts those of `ckpt sign`, and `ckpt verify` accepts those of the package.

    signatures.py --bin build/bin [NAME...] [-v]
    signatures.py --fixtures tests/fixtures/model_signing      write the fixtures of tests/cli/sign again, with new keys

Keys of the three curves, certificates with an intermediate one, folders, single files, links, parts of files ("shards"); and every
change after which both must refuse: ckpt with a sentence of its own and status 8.  Needs model-signing and pyOpenSSL.
"""
import argparse
import base64
import datetime
import json
import os
import shutil
import subprocess
import sys
import tempfile

try:
    import OpenSSL  # noqa: F401
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
    from model_signing import hashing, signing, verifying
except ImportError as x:
    print('signatures: 0 passed, 0 failed, skipped: %s' % x)
    sys.exit(0)
import checks

FIXTURES = os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'fixtures')
TLS, CODE = x509.ExtendedKeyUsageOID.SERVER_AUTH, x509.ExtendedKeyUsageOID.CODE_SIGNING
CURVES = {'p256': ec.SECP256R1, 'p384': ec.SECP384R1, 'p521': ec.SECP521R1}
NOW = datetime.datetime.now(datetime.timezone.utc)
DAY = datetime.timedelta(days=1)
ALWAYS = (datetime.datetime(2026, 1, 1), datetime.datetime(2126, 1, 1))
PAST = (datetime.datetime(2020, 1, 1), datetime.datetime(2021, 1, 1))


# ---- keys and certificates -----------------------------------------------------------------------

def write(path, data):
    with open(path, 'wb') as f:
        f.write(data)
    return path


def keep(folder, name, key):
    """Write NAME.key and NAME.pub."""
    write(os.path.join(folder, name + '.key'), key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()))
    write(os.path.join(folder, name + '.pub'), key.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo))


def certificate(name, key, issuer=None, valid=ALWAYS, usage=True, authority=False, purpose=None):
    """A certificate for a key; issuer: (its certificate, its key), or None for one that signs itself; purpose: extended usage."""
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    signer = issuer[1] if issuer else key
    flags = {'digital_signature': usage and not authority, 'key_cert_sign': authority, 'crl_sign': authority,
             'key_agreement': not usage}
    rest = ('content_commitment', 'key_encipherment', 'data_encipherment', 'encipher_only', 'decipher_only')
    c = (x509.CertificateBuilder().subject_name(subject).issuer_name(issuer[0].subject if issuer else subject)
         .public_key(key.public_key()).serial_number(x509.random_serial_number())
         .not_valid_before(valid[0]).not_valid_after(valid[1])
         .add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
         .add_extension(x509.KeyUsage(**flags, **{r: False for r in rest}), critical=True))
    if purpose:
        c = c.add_extension(x509.ExtendedKeyUsage([purpose]), critical=False)
    return c.sign(signer, hashes.SHA256())


def openssl_key(folder, name, *form):
    """A key of P-256 in another form, as only OpenSSL writes it: NAME.key, NAME.pub."""
    at = os.path.join(folder, name)
    keep(folder, name, ec.generate_private_key(ec.SECP256R1()))
    for more in ((at + '.pub', '-pubout'), (at + '.key',)):
        subprocess.run(['openssl', 'ec', '-in', at + '.key', '-out', *more, *form], check=True, stderr=subprocess.DEVNULL)


def pem(*certificates):
    return b''.join(c.public_bytes(serialization.Encoding.PEM) for c in certificates)


def authority(folder, name, valid=ALWAYS, usage=True, curve=ec.SECP256R1, purpose=None, middle_purpose=None):
    """Write NAME.root, NAME.chain (leaf, intermediate), NAME.leaf, NAME.middle and NAME.key of an authority of its own."""
    root, middle, leaf = (ec.generate_private_key(curve()) for _ in range(3))
    top = certificate(name + ' root', root, authority=True)
    between = certificate(name + ' issuer', middle, (top, root), authority=True, purpose=middle_purpose)
    last = certificate(name + ' release', leaf, (between, middle), valid=valid, usage=usage, purpose=purpose)
    keep(folder, name, leaf)
    for suffix, certificates in (('root', (top,)), ('chain', (last, between)), ('leaf', (last,)), ('middle', (between,))):
        write(os.path.join(folder, '%s.%s' % (name, suffix)), pem(*certificates))


# ---- the package ---------------------------------------------------------------------------------

def config(signature, model, links=False, how=None):
    c = how or hashing.Config()
    c.set_allow_symlinks(links)
    c.set_ignored_paths(paths=[os.path.relpath(signature, model)] if os.path.isdir(model) else [])
    return c


def they_sign(model, signature, key, cert=None, **how):
    c = signing.Config().set_hashing_config(config(signature, model, **how))
    if cert:
        c.use_certificate_signer(private_key=key, signing_certificate=cert + '.leaf', certificate_chain=[cert + '.middle'])
    else:
        c.use_elliptic_key_signer(private_key=key)
    c.sign(model, signature)


def they_verify(model, signature, key=None, root=None, links=False):
    c = verifying.Config().set_hashing_config(config(signature, model, links=links))
    if root:
        c.use_certificate_verifier(certificate_chain=[root])
    else:
        c.use_elliptic_key_verifier(public_key=key)
    c.verify(model, signature)


def they_refuse(*args, **named):
    try:
        they_verify(*args, **named)
    except Exception:
        return []
    return ['model-signing accepts it']


# ---- ckpt ----------------------------------------------------------------------------------------

class Ours:
    def __init__(self, program):
        self.program = program

    def run(self, *args):
        p = subprocess.run([self.program, *args], capture_output=True, text=True, check=False, timeout=60)
        return p.returncode, p.stdout + p.stderr

    def sign(self, model, *args):
        status, said = self.run('sign', '-q', model, *args)
        if status:
            raise RuntimeError('ckpt sign: %d: %s' % (status, said))

    def verify(self, model, *args, status=0, sentence='signature ok:'):
        """Problems: another status, or no such sentence."""
        got, said = self.run('verify', model, *args)
        ok = got == status and sentence in said
        return [] if ok else ['ckpt verify: status %d, expected %d and "%s": %s' % (got, status, sentence, said.strip()[-300:])]


# ---- cases ---------------------------------------------------------------------------------------

class Cases:
    def __init__(self, ours, folder):
        self.ours, self.folder = ours, folder
        self.keys = os.path.join(folder, 'keys')
        os.mkdir(self.keys)
        for name, curve in CURVES.items():
            keep(self.keys, name, ec.generate_private_key(curve()))
        keep(self.keys, 'other', ec.generate_private_key(ec.SECP256R1()))
        keep(self.keys, 'rsa', rsa.generate_private_key(65537, 2048))
        keep(self.keys, 'ed', ed25519.Ed25519PrivateKey.generate())
        keep(self.keys, 'k1', ec.generate_private_key(ec.SECP256K1()))
        authority(self.keys, 'good')
        authority(self.keys, 'big', curve=ec.SECP384R1)
        authority(self.keys, 'foreign')
        authority(self.keys, 'past', valid=PAST)
        authority(self.keys, 'future', valid=(NOW + 300 * DAY, NOW + 600 * DAY))
        authority(self.keys, 'web', usage=False)
        authority(self.keys, 'code', purpose=CODE, middle_purpose=CODE)
        authority(self.keys, 'tls', purpose=TLS)
        authority(self.keys, 'tls-issuer', middle_purpose=TLS)
        openssl_key(self.keys, 'explicit', '-param_enc', 'explicit')
        openssl_key(self.keys, 'compressed', '-conv_form', 'compressed')
        self.n = 0

    def key(self, name):
        return os.path.join(self.keys, name)

    def model(self):
        """A new copy of a model folder, with names whose order is not that of their bytes."""
        self.n += 1
        path = os.path.join(self.folder, 'model%d' % self.n)
        shutil.copytree(os.path.join(FIXTURES, 'hf_bert_sharded'), path)
        os.makedirs(os.path.join(path, 'sub', 'deep'))
        for name in ('sub-c', 'sub/deep/a', 'sub/b', 'sub.d', 'größe.txt', 'empty', '.gitignore', '.hidden'):
            write(os.path.join(path, name), b'' if name == 'empty' else name.encode() * 100)
        return path

    def each_key(self, name):
        model = self.model()
        signature = os.path.join(model, 'model.sig')
        self.ours.sign(model, '--key', self.key(name + '.key'))
        they_verify(model, signature, self.key(name + '.pub'))
        problems = self.ours.verify(model, '--key', self.key(name + '.pub'))
        os.remove(signature)
        they_sign(model, signature, self.key(name + '.key'))
        problems += self.ours.verify(model, '--key', self.key(name + '.pub'))
        problems += they_refuse(model, signature, self.key('other.pub'))
        return problems + self.ours.verify(model, '--key', self.key('other.pub'), status=8,
                                           sentence='was signed with another key')

    def each_certificate(self, name):
        model, outside = self.model(), os.path.join(self.folder, name + '.sig')
        at = self.key(name)
        self.ours.sign(model, '--key', at + '.key', '--cert', at + '.chain', '-o', outside)
        they_verify(model, outside, root=at + '.root')
        more = ('--cert', at + '.root', '--signature', outside)
        problems = self.ours.verify(model, *more)
        they_sign(model, outside, at + '.key', at)
        problems += self.ours.verify(model, *more)
        problems += they_refuse(model, outside, root=self.key('foreign.root'))
        return problems + self.ours.verify(model, '--cert', self.key('foreign.root'), '--signature', outside, status=8,
                                           sentence='does not lead to a root certificate of --cert')

    def bad_certificate(self, name, sentence):
        """A certificate that ckpt refuses, now and for signing; the package takes the time when it became valid as now."""
        model, signature = self.model(), os.path.join(self.folder, 'bad.sig')
        they_sign(model, signature, self.key(name + '.key'), self.key(name))
        problems = self.ours.verify(model, '--cert', self.key(name + '.root'), '--signature', signature, status=8, sentence=sentence)
        status, said = self.ours.run('sign', model, '--key', self.key(name + '.key'), '--cert', self.key(name + '.chain'))
        if status != 8 or sentence not in said:
            problems.append('ckpt sign: status %d: %s' % (status, said))
        if os.path.exists(os.path.join(model, 'model.sig')):
            problems.append('ckpt sign wrote a signature')
        return problems

    def other_kind(self, name):
        """Keys that the package cannot use: nor can ckpt."""
        model = self.model()
        try:
            they_sign(model, os.path.join(self.folder, 'kind.sig'), self.key(name + '.key'))
            return ['model-signing signs with it']
        except Exception:
            pass
        status, said = self.ours.run('sign', model, '--key', self.key(name + '.key'))
        return [] if status == 3 and 'expected an elliptic curve' in said else ['ckpt sign: status %d: %s' % (status, said)]

    def change(self, kind, sign):
        model = self.model()
        signature, key = os.path.join(model, 'model.sig'), self.key('p256')
        if sign == 'ours':
            self.ours.sign(model, '--key', key + '.key')
        else:
            they_sign(model, signature, key + '.key')
        at = os.path.join(model, 'config.json')
        with open(at, 'rb') as f:
            text = f.read()
        if kind == 'changed':
            write(at, text.replace(b'"', b"'", 1))
            sentence = 'config.json was changed: its SHA-256 is '
        elif kind == 'longer':
            write(at, text + b'\n')
            sentence = 'config.json was changed: its SHA-256 is '
        elif kind == 'removed':
            os.remove(at)
            sentence = 'config.json was removed: the signature has it'
        elif kind == 'added':
            write(os.path.join(model, 'sub', 'new'), b'new')
            sentence = 'sub/new was added: the signature does not have it'
        elif kind == 'renamed':
            os.rename(at, os.path.join(model, 'config.json.orig'))
            sentence = 'config.json.orig was renamed: the signature has it as config.json'
        elif kind == 'swapped':
            os.rename(at, at + 'x')
            os.rename(os.path.join(model, 'sub', 'b'), at)
            os.rename(at + 'x', os.path.join(model, 'sub', 'b'))
            sentence = 'sub/b was changed'
        elif kind == 'link':
            os.rename(at, os.path.join(self.folder, 'elsewhere%d' % self.n))
            os.symlink(os.path.join(self.folder, 'elsewhere%d' % self.n), at)
            return they_refuse(model, signature, key + '.pub') + self.ours.verify(
                model, '--key', key + '.pub', status=3, sentence='config.json: is a symbolic link')
        return they_refuse(model, signature, key + '.pub') + self.ours.verify(
            model, '--key', key + '.pub', status=8, sentence=sentence)

    def links(self):
        model = self.model()
        signature, key = os.path.join(model, 'model.sig'), self.key('p256')
        os.rename(os.path.join(model, 'config.json'), os.path.join(self.folder, 'blob'))
        os.symlink('../blob', os.path.join(model, 'config.json'))
        self.ours.sign(model, '--key', key + '.key', '--follow-links')
        they_verify(model, signature, key + '.pub', links=True)
        problems = self.ours.verify(model, '--key', key + '.pub')
        os.remove(signature)
        they_sign(model, signature, key + '.key', links=True)
        problems += self.ours.verify(model, '--key', key + '.pub')
        # the package does not see the files behind a link to a folder
        os.mkdir(os.path.join(self.folder, 'behind'))
        os.symlink('../behind', os.path.join(model, 'folder'))
        return problems + self.ours.verify(model, '--key', key + '.pub', status=3, sentence='is a symbolic link to a folder')

    def one_file(self):
        model = os.path.join(self.model(), 'model-00001-of-00003.safetensors')
        signature, key = model + '.sig', self.key('p256')
        self.ours.sign(model, '--key', key + '.key')
        they_verify(model, signature, key + '.pub')
        they_sign(model, signature, key + '.key')
        more = ('--key', key + '.pub', '--signature', signature)
        status, said = self.ours.run('verify', model, '--as-file', *more)
        problems = [] if status == 0 and 'signature ok: 1 file' in said else ['file: status %d: %s' % (status, said)]
        return problems + self.ours.verify(os.path.dirname(model), *more, status=8, sentence='is a folder, and')

    def shards(self):
        model = self.model()
        signature, key = os.path.join(self.folder, 'shards.sig'), self.key('p256')
        they_sign(model, signature, key + '.key', how=hashing.Config().use_shard_serialization(shard_size=1000))
        more = ('--key', key + '.pub', '--signature', signature)
        problems = self.ours.verify(model, *more)
        write(os.path.join(model, 'sub', 'b'), b'x' * 1500)
        return problems + self.ours.verify(model, *more, status=8, sentence='sub/b:0:1000 was added')

    def other_hash(self, name):
        model = self.model()
        signature, key = os.path.join(self.folder, 'hash.sig'), self.key('p256')
        they_sign(model, signature, key + '.key', how=hashing.Config().use_file_serialization(hashing_algorithm=name))
        return self.ours.verify(model, '--key', key + '.pub', '--signature', signature, status=3, sentence='expected sha256')

    def edited(self, what):
        """A bundle whose text was changed after signing: both refuse."""
        model = self.model()
        signature, key = os.path.join(model, 'model.sig'), self.key('p256')
        self.ours.sign(model, '--key', key + '.key')
        with open(signature) as f:
            bundle = json.load(f)
        envelope = bundle['dsseEnvelope']
        text = base64.b64decode(envelope['payload'])
        if what == 'list':
            envelope['payload'] = base64.b64encode(text.replace(b'config.json', b'config.jsom')).decode()
        elif what == 'type':
            envelope['payloadType'] = 'application/json'
        elif what == 'signature':
            envelope['signatures'][0]['sig'] = base64.b64encode(b'0' * 70).decode()
        elif what == 'none':
            envelope['signatures'][0]['sig'] = ''
        elif what == 'two':
            envelope['signatures'] *= 2
        with open(signature, 'w') as f:
            json.dump(bundle, f)
        status, sentence = {'list': (8, 'does not match'), 'type': (3, 'payloadType'), 'signature': (8, 'does not match'),
                            'none': (3, 'no sig'), 'two': (3, '2 signatures')}[what]
        problems = [] if what == 'two' else they_refuse(model, signature, key + '.pub')
        return problems + self.ours.verify(model, '--key', key + '.pub', status=status, sentence=sentence)

    def all(self):
        """Every case: name, function, arguments."""
        for name in (*CURVES, 'explicit', 'compressed'):
            yield 'key ' + name, self.each_key, name
        for name in ('good', 'big', 'code'):
            yield 'certificate ' + name, self.each_certificate, name
        for name, sentence in (('past', 'expired at Jan  1 00:00:00 2021 GMT'), ('future', 'is not valid before'),
                               ('web', 'is not for signing'), ('tls', 'is not for signing code'),
                               ('tls-issuer', 'tls-issuer issuer is not for signing code')):
            yield 'certificate ' + name, self.bad_certificate, name, sentence
        for name in ('rsa', 'ed', 'k1'):
            yield 'kind ' + name, self.other_kind, name
        for kind in ('changed', 'longer', 'removed', 'added', 'renamed', 'swapped', 'link'):
            for sign in ('ours', 'theirs'):
                yield '%s %s' % (kind, sign), self.change, kind, sign
        yield 'links', self.links
        yield 'file', self.one_file
        yield 'shards', self.shards
        for name in ('blake2', 'blake3'):
            yield 'hash ' + name, self.other_hash, name
        for what in ('list', 'type', 'signature', 'none', 'two'):
            yield 'edited ' + what, self.edited, what


# ---- fixtures ------------------------------------------------------------------------------------

def weak(folder, model):
    """A certificate that its root signed by SHA-1, as only OpenSSL still does."""
    at = os.path.join(folder, 'weak')
    authority(folder, 'weak')
    root = ec.generate_private_key(ec.SECP256R1())
    write(at + '.root', pem(certificate('weak root', root, authority=True)))
    write(at + '.root.key', root.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()))
    with open(at + '.ext', 'w') as f:
        f.write('keyUsage=digitalSignature\n')
    subprocess.run(['openssl', 'req', '-new', '-key', at + '.key', '-subj', '/CN=weak release', '-out', at + '.csr'], check=True)
    subprocess.run(['openssl', 'x509', '-req', '-in', at + '.csr', '-CA', at + '.root', '-CAkey', at + '.root.key', '-sha1',
                    '-days', '36500', '-extfile', at + '.ext', '-out', at + '.leaf'], check=True, stderr=subprocess.DEVNULL)
    shutil.copy(at + '.leaf', at + '.middle')
    they_sign(model, at + '.sig', at + '.key', at)
    for suffix in ('leaf', 'middle', 'pub', 'root.key', 'ext', 'csr', 'key', 'chain'):
        os.remove('%s.%s' % (at, suffix))


def fixtures(folder):
    """A small model, keys and signatures by the package, for tests that have no Python packages."""
    shutil.rmtree(folder, ignore_errors=True)
    model = os.path.join(folder, 'model')
    os.makedirs(os.path.join(model, 'more'))
    shutil.copy(os.path.join(FIXTURES, 'safetensors_dtypes', 'model.safetensors'), os.path.join(model, 'model.safetensors'))
    write(os.path.join(model, 'more', 'notes.txt'), b'notes\n')
    write(os.path.join(model, 'more-notes.txt'), b'more notes\n')
    for name, curve in CURVES.items():
        keep(folder, name, ec.generate_private_key(curve()))
        they_sign(model, os.path.join(folder, name + '.sig'), os.path.join(folder, name + '.key'))
    keep(folder, 'other', ec.generate_private_key(ec.SECP256R1()))
    keep(folder, 'ed25519', ed25519.Ed25519PrivateKey.generate())
    key = os.path.join(folder, 'p256.key')
    they_sign(os.path.join(model, 'model.safetensors'), os.path.join(folder, 'file.sig'), key)
    they_sign(model, os.path.join(folder, 'shards.sig'), key, how=hashing.Config().use_shard_serialization(shard_size=100))
    they_sign(os.path.join(model, 'model.safetensors'), os.path.join(folder, 'file-shards.sig'), key,
              how=hashing.Config().use_shard_serialization(shard_size=1000))
    how = hashing.Config().use_file_serialization(hashing_algorithm='blake3')
    they_sign(model, os.path.join(folder, 'blake3.sig'), key, how=how)
    how = hashing.Config()
    c = signing.Config().set_hashing_config(how.set_ignored_paths(paths=['more']))
    c.use_elliptic_key_signer(private_key=key).sign(model, os.path.join(folder, 'less.sig'))
    for name, options in (('good', {}), ('past', {'valid': PAST}), ('web', {'usage': False}), ('tls', {'purpose': TLS}),
                          ('code', {'purpose': CODE, 'middle_purpose': CODE})):
        authority(folder, name, **options)
        at = os.path.join(folder, name)
        they_sign(model, at + '.sig', at + '.key', at)
        for suffix in ('leaf', 'middle', 'pub'):
            os.remove('%s.%s' % (at, suffix))
    weak(folder, model)


def main():
    p = argparse.ArgumentParser()
    p.add_argument('--bin', default='build/bin')
    p.add_argument('--fixtures')
    p.add_argument('-v', '--verbose', action='store_true')
    p.add_argument('only', nargs='*')
    a = p.parse_args()
    if a.fixtures:
        fixtures(a.fixtures)
        return 0
    tally = checks.Tally(a.verbose)
    with tempfile.TemporaryDirectory() as folder:
        cases = Cases(Ours(os.path.join(os.path.abspath(a.bin), 'ckpt')), folder)
        for name, check, *args in cases.all():
            if not a.only or name in a.only:
                tally.call(name, check, *args)
    return tally.end('signatures')


if __name__ == '__main__':
    sys.exit(main())
