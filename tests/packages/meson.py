#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compare the builds by make and by Meson.

    meson.py BUILD       compare the sources and flags of all products, and the installed files, with those of BUILD, which
                         `meson setup` made
    meson.py --update    write make's lists of sources and pages into the files meson.build

Nothing is compiled: `make -n` and `meson introspect` print the commands, and empty files are installed in place of the products.
"""
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
# flags that decide about results or about what is compiled
MATTER = re.compile(r'-O|-f(?!file-prefix-map|sanitize|PI[CE]$|diagnostics|stack|cf-)|-std=|-DZT_(?!HAVE_)|-DNDEBUG|-D_POSIX|-D_FILE_OFFSET|-U')


def plain_environment():
    """The environment without the caller's flags and make's own variables."""
    return {k: v for k, v in os.environ.items() if 'FLAGS' not in k and not k.startswith('MAKE')}


def make_commands():
    """What make would do for a release without the GPU plugin: each line as words."""
    out = subprocess.run(['make', '-n', '-s', 'all', 'RELEASE=1', 'CUDA=no', 'B=build/compare'],
                         cwd=ROOT, env={k: v for k, v in os.environ.items() if 'FLAGS' not in k}, stdout=subprocess.PIPE, check=True, text=True).stdout
    for line in out.replace('\\\n', ' ').splitlines():
        words = shlex.split(line, comments=True)
        if words:
            yield words


def last_wins(flags):
    """The flags that matter, of which the last -O counts."""
    kept = {f for f in flags if MATTER.match(f) and not f.startswith('-O')}
    return frozenset(kept | set([f for f in flags if re.match(r'-O.', f)][-1:]))


def make_lists():
    """(flags of each source, members of each archive, sources of each plugin)"""
    flags, archives = {}, {}
    for words in make_commands():
        sources = [w for w in words if w.endswith('.c')]
        output = words[words.index('-o') + 1] if '-o' in words else ''
        if sources and (output.endswith('.o') or '-shared' in words):
            for source in sources:
                flags[source] = last_wins(words) if output.endswith('.o') or source not in flags else flags[source]
        elif 'rcsD' in words:
            members = [re.sub(r'^build/compare/(obj/)?(.*)\.o$', r'\2.c', w) for w in words if w.endswith('.o')]
            archives[re.sub(r'^lib|\.a$', '', os.path.basename(words[2]))] = members
    return {f: v for f, v in flags.items() if not f.startswith('build/')}, archives


def lists():
    """The lists in the files meson.build: file, name of the list, paths."""
    flags, archives = make_lists()
    wide = {f for f in archives['ckpt'] if '-O3' in flags[f]}
    plain = [f for f in archives['ckpt'] if f not in wide]
    device = [f for f in archives['zerotrain'] if f.startswith('engine/device/')]
    comm = [f for f in archives['zerotrain'] if f.startswith('engine/comm/')]
    model = [f for f in archives['models'] if f not in device]
    trained = [f for f in os.listdir(os.path.join(ROOT, 'tools/zerotrain')) if f.endswith('.c')]
    yield 'libckpt', 'libckpt_sources =', [f for f in plain if f.startswith('libckpt/')]
    yield 'libckpt', 'vector_sources =', [f for f in wide if f.startswith('libckpt/')]
    yield 'formats', 'libckpt_sources +=', [f for f in plain if f.startswith('formats/')]
    yield 'formats', 'vector_sources +=', [f for f in wide if f.startswith('formats/')]
    yield 'engine', 'device_sources =', device
    yield 'engine', 'comm_sources =', comm
    yield 'engine', 'model_sources =', model
    yield 'engine', 'engine_sources =', [f for f in archives['zerotrain'] if f not in device + comm + model]
    yield 'tools', 'tools_sources =', [f for f in archives['tools'] if f.startswith('tools/')]
    yield 'tools', 'zerotrain_sources =', ['tools/zerotrain/' + f for f in trained]
    maps = os.listdir(os.path.join(ROOT, 'tools/share/maps'))
    yield 'tools', 'maps_sources =', ['tools/share/maps/' + f for f in maps if f.endswith('.map')]
    yield 'man', 'install_man', ['man/' + f for f in os.listdir(os.path.join(ROOT, 'man')) if re.search(r'\.[1357]$', f)]


def update():
    """Write the lists; each list ends with a line that has only a bracket."""
    texts = {}
    for folder, name, paths in lists():
        file = os.path.join(ROOT, folder, 'meson.build')
        if file not in texts:
            with open(file, encoding='utf-8') as f:
                texts[file] = f.read()
        opening = name + ('(' if name == 'install_man' else ' files(')
        body = ''.join("    '%s',\n" % os.path.relpath(p, folder) for p in sorted(paths))
        texts[file], n = re.subn(r'(?m)^' + re.escape(opening) + r'\n(?:.*\n)*?\)$', lambda _: opening + '\n' + body + ')', texts[file])
        if n != 1:
            sys.exit('%s: expected one list "%s"' % (file, opening))
    for file, text in texts.items():
        with open(file, 'w', encoding='utf-8') as f:
            f.write(text)


def introspect(what, build):
    """One of Meson's lists."""
    return json.loads(subprocess.run(['meson', 'introspect', '--' + what, build], stdout=subprocess.PIPE, check=True, text=True).stdout)


def meson_lists(build):
    """(flags of each source, sources of each target) by Meson; a target's objects of other targets are not among its sources."""
    flags, targets = {}, {}
    for target in introspect('targets', build):
        name = target['type'] + ' ' + target['name']
        for group in target['target_sources']:
            for source in group.get('sources', []):
                if source.endswith('.c'):
                    path = os.path.relpath(source, ROOT)
                    flags[path] = last_wins(group['parameters'])
                    targets.setdefault(name, set()).add(path)
    return flags, targets


def installed(folder):
    """The files in a folder; of a link where it points to."""
    files = set()
    for at, _, names in os.walk(folder):
        for name in names:
            path = os.path.join(at, name)
            files.add(os.path.relpath(path, folder) + (' -> ' + os.readlink(path) if os.path.islink(path) else ''))
    return files


def run(*command):
    """Run a command of which only an error is of interest."""
    done = subprocess.run(command, cwd=ROOT, env=plain_environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode:
        sys.exit('%s:\n%s' % (' '.join(command), done.stdout[-2000:]))


def installed_by_make(work):
    """What `make install` installs: `make -t` makes empty products in folders that are here already."""
    b = os.path.join(work, 'make')
    for at, _, _ in os.walk(ROOT):
        part = os.path.relpath(at, ROOT)
        if part.split(os.sep)[0] in ('libckpt', 'formats', 'engine', 'tools'):
            os.makedirs(os.path.join(b, 'obj', part), exist_ok=True)
    for part in ('bin', 'lib', 'gen/tools/report'):
        os.makedirs(os.path.join(b, part))
    options = ['CUDA=no', 'B=' + b, 'RELEASE=1', 'PREFIX=/usr', 'LIBDIR=/usr/lib']
    run('make', '-s', '-t', 'all', *options)
    for program in ('ckpt', 'zerotrain'):
        with open(os.path.join(b, 'bin', program), 'w', encoding='ascii') as f:
            f.write('#!/bin/sh\n')
        os.chmod(os.path.join(b, 'bin', program), 0o755)
    run('make', '-s', 'install', 'DESTDIR=' + work + '/by-make', *options)
    return installed(work + '/by-make')


def installed_by_meson(build, work):
    """What `meson install` installs, of empty products where there are none."""
    for target in introspect('targets', build):
        for path in target['filename']:
            if not os.path.exists(path):
                os.makedirs(os.path.dirname(path), exist_ok=True)
                open(path, 'wb').close()
    run('meson', 'install', '-C', build, '--no-rebuild', '--destdir', work + '/by-meson')
    return installed(work + '/by-meson')


def compare(build):
    """Print the differences; the number of failures."""
    made, archives = make_lists()
    found, targets = meson_lists(build)
    passed = failed = 0

    def verdict(what, wanted, is_there):
        nonlocal passed, failed
        if wanted == is_there:
            passed += 1
            return
        failed += 1
        print('FAIL meson: %s: only make has %s, only Meson has %s' % (what, sorted(wanted - is_there), sorted(is_there - wanted)))

    verdict('sources', set(made), set(found))
    for source in sorted(set(made) & set(found)):
        verdict(source, made[source], found[source])
    verdict('libckpt', set(archives['ckpt']), targets['shared library ckpt'] | targets['static library ckpt-vector'])
    verdict('tools', set(archives['tools']) - {'gen/maps.c'}, targets['static library ckpt-tools'])
    verdict('models', set(archives['models']) - {'engine/device/device.c'}, targets['static library zerotrain-models'])
    with tempfile.TemporaryDirectory() as work:
        verdict('installed files', installed_by_make(work), installed_by_meson(build, work))
    print('meson: %d passed, %d failed' % (passed, failed))
    return failed


if __name__ == '__main__':
    if sys.argv[1:] == ['--update']:
        update()
    elif len(sys.argv) == 2:
        sys.exit(1 if compare(sys.argv[1]) else 0)
    else:
        sys.exit(__doc__)
