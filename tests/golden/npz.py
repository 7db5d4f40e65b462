#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""numpy's files read and written: the values against those recorded with numpy, and by numpy itself where it is installed.

    npz.py --bin build/bin FIXTURES

Every array of the fixtures numpy_npz and npz_more goes to npz again and is read by a reader of our own; what is no array of
numbers is refused, or named as left out; what is damaged is refused.
"""
import argparse
import ast
import hashlib
import json
import os
import struct
import subprocess
import sys
import tempfile
import zipfile

DAMAGED = ('bad_magic.npy', 'cut.npy', 'header_lies.npy', 'trailing.npy')
UNKNOWN = ('structured.npy', 'strings.npy', 'bytes.npy', 'datetime.npy', 'longdouble.npy', 'v9.npy')
passed, failed = 0, []


def verdict(name, problem):
    global passed
    if problem:
        failed.append(name)
        print('FAIL %s: %s' % (name, problem))
    else:
        passed += 1


def array(data):
    """(descr, shape, data) of a .npy as we write it."""
    if data[:8] != b'\x93NUMPY\1\0':
        raise ValueError('another lead')
    n = 10 + struct.unpack('<H', data[8:10])[0]
    head = ast.literal_eval(data[10:n].decode('ascii'))
    if n % 64 or head['fortran_order'] or not data[:n].endswith(b'\n'):
        raise ValueError('another header')
    return head['descr'], list(head['shape']), data[n:]


def archive(path):
    with zipfile.ZipFile(path) as z:
        if z.testzip():
            raise ValueError('a checksum does not hold')
        return {i.filename[:-4]: array(z.read(i)) for i in z.infolist()}


def native(descr):
    return descr.replace('>', '<')


def compare(got, want):
    if list(got) != list(want):
        return 'has %s instead of %s' % (list(got), list(want))
    for name, w in want.items():
        descr, shape, data = got[name]
        if (descr, shape) != (native(w['descr']), w['shape']):
            return '%s is %s %s' % (name, descr, shape)
        if hashlib.sha256(data).hexdigest() != w['sha256_little_endian_c_order']:
            return '%s has other values' % name
    return ''


def by_numpy(path, source):
    """What numpy finds in ours, beside what it finds in the source."""
    try:
        import numpy
    except ImportError:
        return ''
    a, b = numpy.load(path), numpy.load(source)
    files = b.files if hasattr(b, 'files') else None
    for name in a.files:
        want = b[name] if files else b
        if a[name].shape != want.shape or a[name].tobytes() != want.astype(want.dtype.newbyteorder('<')).tobytes():
            return 'numpy reads other values of %s' % name
    return ''


def convert(a, source, out, *options):
    command = [os.path.join(a.bin, 'ckpt'), 'convert', '-q', source, out, *options]
    p = subprocess.run(command, capture_output=True, text=True, timeout=120)
    return p.returncode, p.stderr


def members(path, method):
    """Members are kept as they should be, and our reader and libzip agree."""
    with zipfile.ZipFile(path) as z:
        if any(i.compress_type != method for i in z.infolist()):
            return 'a member is not of method %d' % method
    return ''


def verified(a, path):
    p = subprocess.run([os.path.join(a.bin, 'ckpt'), 'verify', '-q', path], capture_output=True, text=True, timeout=120)
    return 'verify says: ' + p.stdout + p.stderr if p.returncode else ''


def round_trip(a, name, source, want, out):
    """Written as it is, and deflated from what was written: both have the values of the source."""
    deflated = out[:-4] + '_deflated.npz'
    for path, origin, method, options in ((out, source, zipfile.ZIP_STORED, ()), (deflated, out, zipfile.ZIP_DEFLATED, ('--compress',))):
        rc, text = convert(a, origin, path, *options)
        try:
            problem = ('exit %d: %s' % (rc, text) if rc else
                       members(path, method) or compare(archive(path), want) or by_numpy(path, source) or verified(a, path))
        except (ValueError, KeyError, zipfile.BadZipFile) as x:
            problem = 'not as numpy writes it: %s' % x
        verdict(' '.join((name,) + options), problem)


def refused(a, name, source, status, out):
    rc, text = convert(a, source, out)
    verdict(name, '' if rc == status and not os.path.exists(out) else 'exit %d instead of %d: %s' % (rc, status, text))


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument('--bin', default='build/bin')
    p.add_argument('fixtures')
    a = p.parse_args()
    for fixture in ('numpy_npz', 'npz_more'):
        folder = os.path.join(a.fixtures, fixture)
        with open(os.path.join(folder, 'expected.json'), encoding='utf-8') as f:
            expected = json.load(f)
        for name in sorted(os.listdir(folder)):
            source = os.path.join(folder, name)
            label = fixture + '/' + name
            with tempfile.TemporaryDirectory() as tmp:
                out = os.path.join(tmp, 'out.npz')
                if name in ('plain.npz', 'deflated.npz'):
                    round_trip(a, label, source, expected['arrays'], out)
                elif name == 'positional.npz':
                    round_trip(a, label, source, expected['positional'], out)
                elif name in expected.get('npy', ()):
                    round_trip(a, label, source, {name[:-4]: expected['npy'][name]}, out)
                elif name in DAMAGED or name in UNKNOWN:
                    refused(a, label, source, 3, out)
                elif name == 'object.npy':
                    refused(a, label, source, 4, out)
                elif name == 'one.npy':
                    rc, text = convert(a, source, out)
                    verdict(label, 'exit %d: %s' % (rc, text) if rc else by_numpy(out, source))
                elif name == 'mixed.npz':
                    rc, text = convert(a, source, out)
                    verdict(label, '' if rc == 0 and 'left out' in text else 'exit %d: %s' % (rc, text))
                elif name != 'expected.json':
                    verdict(label, 'is not tried')
    print('npz: %d passed, %d failed' % (passed, len(failed)))
    return 1 if failed or not passed else 0


if __name__ == '__main__':
    sys.exit(main())
