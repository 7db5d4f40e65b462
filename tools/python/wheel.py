#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Pack the Python package into a wheel: its modules, libckpt.so, the ckpt program, and the libraries of both.

    wheel.py --library FILE --program FILE [--version V] [--out dist] [--strip PROGRAM] [--licences FOLDER]

It needs no network and no other package.  The same inputs make the same bytes.  The tag names the machine, and the oldest glibc
that can run the wheel: the newest symbol version that one of its files needs.  The wheel contains libraries of the system under
new names ("ckpzip.so.4"), so that they do not conflict with those of other packages.  If they are linked statically instead
(`make manylinux`), FOLDER must contain their licences, and --strip may name the strip of another machine.
"""
import argparse
import base64
import glob
import hashlib
import os
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import zipfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
COMMANDS = ('ckpt', 'zero_to_fp32', 'zero_to_torch', 'ds_to_universal')
# libraries of glibc: the wheel must use those of the system, because two C libraries in a process do not work
OF_GLIBC = re.compile(r'(linux-vdso|libc|libm|libpthread|libdl|librt|ld-linux[^.]*)\.so')
DT_NEEDED, DT_STRTAB, DT_STRSZ, DT_SONAME, DT_VERNEED, DT_VERNEEDNUM = 1, 5, 10, 14, 0x6ffffffe, 0x6fffffff


class Elf:
    """A 64-bit little-endian ELF file: the names of the libraries and the versions of symbols that it needs."""

    def __init__(self, path):
        with open(path, 'rb') as f:
            self.data = bytearray(f.read())
        if self.data[:6] != b'\x7fELF\x02\x01':
            raise SystemExit('%s: not a 64-bit little-endian ELF file' % path)
        kind, = struct.unpack_from('<H', self.data, 18)
        self.machine = {62: 'x86_64', 183: 'aarch64'}.get(kind)
        if self.machine is None:
            raise SystemExit('%s: expected x86-64 or aarch64' % path)
        phoff, = struct.unpack_from('<Q', self.data, 32)
        size, n = struct.unpack_from('<HH', self.data, 54)
        self.load, dynamic = [], None
        for i in range(n):
            kind, _, at, address, _, in_file = struct.unpack_from('<IIQQQQ', self.data, phoff + i * size)
            if kind == 1:
                self.load.append((address, at, in_file))
            elif kind == 2:
                dynamic = (at, in_file)
        if dynamic is None:
            raise SystemExit('%s: is not linked dynamically' % path)
        pairs = [struct.unpack_from('<QQ', self.data, at) for at in range(dynamic[0], dynamic[0] + dynamic[1], 16)]
        first = dict(reversed(pairs))
        self.text_at, self.text_size = self.offset(first[DT_STRTAB]), first[DT_STRSZ]
        self.needed = [self.text(v) for k, v in pairs if k == DT_NEEDED]
        self.soname = self.text(first[DT_SONAME]) if DT_SONAME in first else None
        self.versions = []  # (library, version)
        at = self.offset(first[DT_VERNEED]) if DT_VERNEED in first else 0
        for _ in range(first.get(DT_VERNEEDNUM, 0)):
            _, n_aux, file, aux, following = struct.unpack_from('<HHIII', self.data, at)
            inner = at + aux
            for _ in range(n_aux):
                _, _, _, name, more = struct.unpack_from('<IHHII', self.data, inner)
                self.versions.append((self.text(file), self.text(name)))
                inner += more
            at += following

    def offset(self, address):
        return next(address - a + at for a, at, n in self.load if a <= address < a + n)

    def text(self, at):
        at += self.text_at
        return self.data[at:self.data.index(b'\0', at)].decode()

    def rename(self, old, new):
        """Replace a library's name by another one of the same length, in all uses in this file."""
        end = self.text_at + self.text_size
        at = self.data.find(b'\0' + old.encode() + b'\0', self.text_at, end)
        if at < 0:
            raise SystemExit('%s is not named as a whole: its text is shared with another one' % old)
        self.data[at + 1:at + 1 + len(old)] = new.encode()


def own_name(name):
    return 'ckp' + name[3:]


def libraries(path, found):
    """Add to `found` the libraries of the system that a file needs, directly or indirectly: name -> path."""
    if all(OF_GLIBC.match(n) for n in Elf(path).needed):
        return
    out = subprocess.run(['ldd', path], capture_output=True, text=True, check=True).stdout
    for name, where in re.findall(r'^\s*(\S+) => (\S+)', out, re.M):
        if not OF_GLIBC.match(name):
            if where == 'not':
                raise SystemExit('%s: %s is not installed' % (path, name))
            if not name.startswith('lib'):
                raise SystemExit('%s: cannot rename %s: its name does not start with lib' % (path, name))
            found[name] = os.path.realpath(where)


def stripped(path, folder, strip):
    """Copy a file without data for debuggers; unchanged if strip is not installed."""
    to = os.path.join(folder, os.path.basename(path))
    if not shutil.which(strip) or subprocess.run([strip, '--strip-unneeded', '-o', to, path], check=False).returncode:
        shutil.copyfile(path, to)
    return to


def machine_code(library, program, strip):
    """Return the wheel's files of machine code, name -> bytes; their tag; and the paths of the libraries that it contains."""
    found = {}
    for path in (library, program):
        libraries(path, found)
    files = {'libckpt.so.0': library, 'ckpt': program, **{own_name(n): p for n, p in found.items()}}
    out, glibc = {}, set()
    with tempfile.TemporaryDirectory() as folder:
        for name, path in sorted(files.items()):
            elf = Elf(stripped(path, folder, strip))
            for other in [n for n in elf.needed if not OF_GLIBC.match(n)]:
                elf.rename(other, own_name(other))
            if elf.soname in found:
                elf.rename(elf.soname, own_name(elf.soname))
            for of, version in elf.versions:
                m = re.fullmatch(r'GLIBC_(\d+)\.(\d+)(?:\.\d+)?', version)
                if OF_GLIBC.match(of) and m:
                    glibc.add((int(m[1]), int(m[2])))
                elif OF_GLIBC.match(of):
                    raise SystemExit('%s: needs %s of %s, for which no wheel tag exists' % (name, version, of))
            out[name] = bytes(elf.data)
    return out, 'py3-none-manylinux_%d_%d_%s' % (*max(glibc), elf.machine), found


def licences(found, folder):
    """Return the licences of the libraries in the wheel, from their Debian packages, and those in a folder."""
    out = {}
    for path in sorted(glob.glob(os.path.join(folder, '*'))) if folder else ():
        with open(path, 'rb') as f:
            out[os.path.basename(path)] = f.read()
    for name, path in sorted(found.items()):
        for place in (path, re.sub(r'^/usr', '', path)):
            p = subprocess.run(['dpkg-query', '-S', place], capture_output=True, text=True, check=False) if shutil.which('dpkg-query') else None
            if p and p.returncode == 0:
                text = '/usr/share/doc/%s/copyright' % p.stdout.split(':')[0]
                if os.path.exists(text):
                    with open(text, 'rb') as f:
                        out[own_name(name) + '.txt'] = f.read()
                break
        else:
            print('wheel: the licence of %s was not found: add it before you pass the wheel on' % name, file=sys.stderr)
    return out


def read(*path):
    with open(os.path.join(ROOT, *path), 'rb') as f:
        return f.read()


def contents(version, library, program, strip, folder):
    """Return every file of the wheel except RECORD, path -> (bytes, executable); the tag; and the folder of its metadata."""
    code, tag, found = machine_code(library, program, strip)
    info = 'libckpt-%s.dist-info/' % version
    out = {'ckpt/bin/' + n: (data, True) for n, data in code.items()}
    for path in sorted(glob.glob(os.path.join(HERE, 'ckpt', '*'))):
        if path.endswith(('.py', '.typed')):
            out['ckpt/' + os.path.basename(path)] = (read(path), False)
    for name, data in {'LICENSE': read('LICENSE'), 'NOTICE': read('NOTICE'), **licences(found, folder)}.items():
        out[info + 'licenses/' + name] = (data, False)
    page = read('tools', 'python', 'README.md').decode()
    metadata = ('Metadata-Version: 2.1\nName: libckpt\nVersion: %s\nSummary: Open, convert, compare and verify checkpoints of large models\n'
                'License: Apache-2.0\nRequires-Python: >=3.8\nClassifier: Operating System :: POSIX :: Linux\n'
                'Classifier: Programming Language :: Python :: 3\nClassifier: Typing :: Typed\n'
                'Description-Content-Type: text/markdown\n\n%s' % (version, page))
    out[info + 'METADATA'] = (metadata.encode(), False)
    out[info + 'WHEEL'] = (('Wheel-Version: 1.0\nGenerator: ckpt\nRoot-Is-Purelib: false\nTag: %s\n' % tag).encode(), False)
    scripts = ''.join('%s = ckpt._commands:%s\n' % (c, c) for c in COMMANDS)
    out[info + 'entry_points.txt'] = (('[console_scripts]\n' + scripts).encode(), False)
    return out, tag, info


def main():
    p = argparse.ArgumentParser()
    p.add_argument('--library', required=True)
    p.add_argument('--program', required=True)
    p.add_argument('--version', default='0.1.0')
    p.add_argument('--out', default='dist')
    p.add_argument('--strip', default='strip')
    p.add_argument('--licences')
    a = p.parse_args()
    files, tag, info = contents(a.version, a.library, a.program, a.strip, a.licences)
    record = ''
    for path, (data, _) in sorted(files.items()):
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b'=').decode()
        record += '%s,sha256=%s,%d\n' % (path, digest, len(data))
    files[info + 'RECORD'] = ((record + info + 'RECORD,,\n').encode(), False)
    os.makedirs(a.out, exist_ok=True)
    to = os.path.join(a.out, 'libckpt-%s-%s.whl' % (a.version, tag))
    with zipfile.ZipFile(to + '.tmp', 'w', zipfile.ZIP_DEFLATED, compresslevel=9) as z:
        for path, (data, executable) in sorted(files.items(), key=lambda f: (f[0].startswith(info), f[0])):
            entry = zipfile.ZipInfo(path, (1980, 1, 1, 0, 0, 0))
            entry.external_attr = (0o100755 if executable else 0o100644) << 16
            entry.compress_type, entry.create_system = zipfile.ZIP_DEFLATED, 3
            z.writestr(entry, data, compresslevel=9)
    os.replace(to + '.tmp', to)
    print('%s  %d files, %.1f MB' % (to, len(files), os.path.getsize(to) / 1e6))


if __name__ == '__main__':
    main()
