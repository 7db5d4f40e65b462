#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The documentation stays true: tutorials and samples do what they show, pages refer to pages that exist, the site has no dead link.

    run.py [--update] --build build

The commands ("$ ...") of a tutorial's literal blocks are run in their order in one folder, and must print what stands below them;
a block after the comment "file: NAME" is that file, one after "needs: PROGRAM..." is left out where a program is missing.  Of
other pages the blocks after such a comment are run, too ("needs: ckpt"; "needs: mount" also wants to mount).  Times, speeds, losses,
differences and free space are made equal first.  --update writes what was printed into the pages instead.
"""
import argparse
import ast
import functools
import glob
import os
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
FIXTURES = os.path.join(ROOT, 'tests', 'fixtures')
BLOCK = re.compile(r'((?:^\.\\" (?:file|needs): [^\n]*\n)?)^(\.Bd -literal[^\n]*\n)(.*?)^\.Ed$', re.M | re.S)
VARIES = ((r' in [0-9.]+ m?s \([0-9.]+ [KMGT]?B/s\)', ' in TIME'), (r'[0-9.]+ [KMGT]?B free', 'SPACE free'),
          (r'\b(loss|norm|perplexity) [0-9.]+', r'\1 N'), (r'[0-9]+ tokens/s +[0-9]+ MiB', 'N tokens/s  N MiB'),
          (r'by at most [0-9.e-]+', 'by at most N'), (r'by key [0-9a-f]{64}', 'by key SHA'))
# pages of other programs
ELSEWHERE = {('cp', '1'), ('sha256sum', '1'), ('mpirun', '1'), ('srun', '1'), ('nvcc', '1'), ('pread', '2'), ('pwrite', '2')}


def prepare(folder):
    """The checkpoints that the tutorials speak of; rotten has a bit changed in a tensor of the second rank."""
    for name, fixture in (('checkpoint-4', 'hf_trainer_llama_z3_bf16_w2/ckpt'), ('run', 'z1_bf16_w2_tags/ckpt'),
                          ('base', 'gguf_llama_deep/hf'), ('gpt2', 'peft_gpt2_conv1d/base'), ('lora', 'peft_gpt2_conv1d/adapter'),
                          ('sentiment', 'sentiment'), ('fsdp', 'fsdp2_mp_w2/ckpt'), ('meta', 'map_meta_llama2_s2/meta')):
        shutil.copytree(os.path.join(FIXTURES, fixture), os.path.join(folder, name))
    subprocess.run(['chmod', '-R', 'u+w', folder], check=True)
    os.rename(os.path.join(folder, 'run', 'étape 4 – 最終'), os.path.join(folder, 'run', 'global_step4'))
    shutil.copytree(os.path.join(folder, 'checkpoint-4'), os.path.join(folder, 'rotten'))
    part = os.path.join(folder, 'rotten', 'global_step4', 'bf16_zero_pp_rank_1_mp_rank_00_optim_states.pt')
    with open(part, 'r+b') as f:
        at = f.read().index(b'/data/3') + 512
        f.seek(at)
        byte = f.read(1)[0]
        f.seek(at)
        f.write(bytes((byte ^ 4,)))


def pkg_config(build, folder):
    """ckpt.pc as of an installed library, for the tree."""
    headers = '-I' + os.path.join(ROOT, 'libckpt', 'include')
    lib = os.path.join(build, 'lib')
    with open(os.path.join(folder, 'ckpt.pc'), 'w', encoding='utf-8') as f:
        f.write('Name: ckpt\nDescription: the tree\nVersion: 0\nLibs: -L%s -lckpt -Wl,-rpath,%s\nCflags: %s\n' % (lib, lib, headers))


def environment(build, folder):
    pkg_config(build, folder)
    # mpirun: as root, more processes than processors
    return dict(os.environ, PATH=os.path.join(build, 'bin') + ':' + os.environ['PATH'], LC_ALL='C.UTF-8', NO_COLOR='1',
                PKG_CONFIG_PATH=folder, PYTHONPATH=os.path.join(ROOT, 'tools', 'python'), PYTHONDONTWRITEBYTECODE='1',
                CKPT_LIBRARY=os.path.join(build, 'lib', 'libckpt.so.0'), CKPT_PROGRAM=os.path.join(build, 'bin', 'ckpt'),
                OMPI_ALLOW_RUN_AS_ROOT='1', OMPI_ALLOW_RUN_AS_ROOT_CONFIRM='1', OMPI_MCA_rmaps_base_oversubscribe='1',
                OMPI_MCA_hwloc_base_binding_policy='none', PMIX_MCA_gds=os.environ.get('PMIX_MCA_gds') or 'hash')


def plain(text):
    """A literal block as a reader sees it."""
    return text.replace('\\&', '').replace('\\-', '-').replace('\\e', '\\')


def roff(text):
    out = text.replace('\\', '\\e')
    return ''.join(('\\&' + line if line[:1] in '.\'' else line) for line in out.splitlines(True))


def equal(text):
    for what, by in VARIES:
        text = re.sub(what, by, text)
    return text


class Tally:
    passed = failed = 0

    def check(self, good, *said):
        self.passed += bool(good)
        self.failed += not good
        if not good:
            print('doc: FAIL', *said)


@functools.lru_cache
def mounts(build):
    """Whether a file system can be mounted here."""
    with tempfile.TemporaryDirectory() as top:
        at = os.path.join(top, 'view')
        tried = subprocess.run([os.path.join(build, 'bin', 'ckpt'), 'mount', '-q', '--daemon', '--to', 'hf',
                                os.path.join(FIXTURES, 'hf_trainer_llama_z3_bf16_w2', 'ckpt'), at], capture_output=True)
        return tried.returncode == 0 and subprocess.run(['fusermount3', '-u', at]).returncode == 0


def missing(need, build):
    for name in need:
        if name == 'mount':
            if not mounts(build):
                return 'a right to mount'
            continue
        if not (shutil.which(name) or os.path.exists(os.path.join(build, 'bin', name))) or name == 'mpirun' and not os.path.exists(os.path.join(build, 'lib', 'libckpt-mpi.so')):
            return name
    return None


def run_block(text, page, folder, env, tally):
    """The block as it should be: commands, each with what it printed."""
    out = ''
    for m in re.finditer(r'^\$ (.*)\n((?:(?!\$ ).*\n)*)', text, re.M):
        p = subprocess.run(plain(m[1]), shell=True, cwd=folder, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                           stderr=subprocess.PIPE if m[1].startswith('mpirun') else subprocess.STDOUT, check=False)
        printed = p.stdout.decode('utf-8', 'replace')
        if p.stderr and p.returncode:  # mpirun has remarks of its own about the machine
            printed += p.stderr.decode('utf-8', 'replace')
        same = equal(printed) == equal(plain(m[2]))
        tally.check(same, '%s: $ %s\n  prints\n%s  where stands\n%s' % (page, m[1], printed, plain(m[2])))
        out += '$ %s\n%s' % (m[1], m[2] if same else roff(printed))
    return out


def samples(path, build, tally, update):
    page = os.path.basename(path)
    whole = '-tutorial-' in page
    with open(path, encoding='utf-8') as f:
        text = f.read()
    out, at = '', 0
    with tempfile.TemporaryDirectory() as top:
        folder, aside = os.path.join(top, 'work'), os.path.join(top, 'aside')
        os.mkdir(folder)
        os.mkdir(aside)
        prepare(folder)
        env = environment(build, aside)
        for m in BLOCK.finditer(text):
            words = m[1].split()
            body = m[3]
            if not whole and not words:
                continue
            if words[1:2] == ['file:']:
                with open(os.path.join(folder, words[2]), 'w', encoding='utf-8') as f:
                    f.write(plain(body))
            elif words[1:2] == ['needs:'] and missing(words[2:], build):
                print('doc: skipped a block of %s: %s is not here' % (page, missing(words[2:], build)))
            else:
                tally.check(body.startswith('$ '), '%s: a block that is no command, and no file' % page)
                body = run_block(body, page, folder, env, tally)
            out, at = out + text[at:m.start(3)] + body, m.end(3)
    if update:
        with open(path, 'w', encoding='utf-8') as f:
            f.write(out + text[at:])


def references(tally):
    """Every .Xr goes to a page that is there."""
    pages = {tuple(os.path.basename(p).rsplit('.', 1)) for p in glob.glob(os.path.join(ROOT, 'man', '*.[0-9]'))}
    for p in sorted(glob.glob(os.path.join(ROOT, 'man', '*.[0-9]'))):
        with open(p, encoding='utf-8') as f:
            found = {tuple(x) for x in re.findall(r'(?:^\.|\s)Xr (\S+) (\d)', f.read())}
        tally.check(found <= pages | ELSEWHERE, os.path.basename(p), 'refers to', sorted(found - pages - ELSEWHERE))
    return pages


def links(tally):
    """Every relative link of a page in Markdown leads to a file."""
    for p in sorted(glob.glob(os.path.join(ROOT, '**', '*.md'), recursive=True)):
        if os.path.relpath(p, ROOT).startswith(('build', 'tests/fixtures')):
            continue
        with open(p, encoding='utf-8') as f:
            found = [t.partition('#')[0] for t in re.findall(r'\]\(([^)\s]+)\)', f.read()) if not re.match(r'[a-z]+:', t)]
        dead = [t for t in found if t and not os.path.exists(os.path.join(os.path.dirname(p), t))]
        tally.check(not dead, os.path.relpath(p, ROOT), 'has links that lead nowhere:', dead)


def python_page(tally):
    """ckpt-python(7) has every public name of the package, and nothing as one that is none."""
    with open(os.path.join(ROOT, 'tools', 'python', 'ckpt', '__init__.py'), encoding='utf-8') as f:
        tree = ast.parse(f.read())
    names = next(set(ast.literal_eval(n.value)) for n in tree.body
                 if isinstance(n, ast.Assign) and getattr(n.targets[0], 'id', '') == '__all__')
    with open(os.path.join(ROOT, 'man', 'ckpt-python.7'), encoding='utf-8') as f:
        listed = re.findall(r'^\.Ql (\w+)', f.read().split('.Ss Names')[1].split('.Sh ')[0], re.M)
    tally.check(names == set(listed), 'ckpt-python.7 lacks', sorted(names - set(listed)), 'or knows more:', sorted(set(listed) - names))


def compared(tally):
    """Figures of ckpt-compared(7) stand in the lines of RESULTS.md that its comments name; those of its prose somewhere in it."""
    with open(os.path.join(ROOT, 'tests', 'bench', 'RESULTS.md'), encoding='utf-8') as f:
        lines = f.read().splitlines()
    with open(os.path.join(ROOT, 'man', 'ckpt-compared.7'), encoding='utf-8') as f:
        page = f.read()
    rows = re.findall(r'^\.\\" RESULTS: (.*)\n\.It (.*)$', page, re.M)
    for begin, row in rows:
        found = [line for line in lines if line.lstrip('| ').startswith(begin)]
        figures = re.findall(r'(?<= Ta )[0-9.]+', row)
        there = set(re.findall(r'[0-9]+(?:\.[0-9]+)?', found[0])) if found else set()
        tally.check(len(found) == 1 and len(figures) == 2 and set(figures) <= there, 'ckpt-compared.7:', row, 'stands not in RESULTS.md:', found)
    tally.check(len(rows) == len(re.findall(r'^\.It .* Ta [0-9]', page, re.M)), 'ckpt-compared.7: a row that does not say where it is from')
    for figure in re.findall(r'\b[0-9]+\.[0-9]+\b', re.sub(r'^\.(?:\\"|It ).*$', '', page, flags=re.M)):
        tally.check(any(re.search(r'(?<![0-9.])%s(?![0-9])' % re.escape(figure), line) for line in lines), 'ckpt-compared.7:', figure)


def site(pages, tally):
    """The site is made, has every page, and each of its links leads somewhere."""
    if not shutil.which('mandoc'):
        print('doc: skipped the site: mandoc is not here')
        return
    with tempfile.TemporaryDirectory() as folder:
        p = subprocess.run(['sh', os.path.join(ROOT, 'tools', 'site.sh'), folder], cwd=ROOT, capture_output=True, text=True, check=False)
        tally.check(p.returncode == 0, 'site.sh:', p.stderr)
        files = set(os.listdir(folder))
        tally.check({'%s.%s.html' % page for page in pages} | {'index.html', 'style.css'} == files, 'files of the site:', sorted(files))
        text = {}
        for name in sorted(files):
            with open(os.path.join(folder, name), encoding='utf-8') as f:
                text[name] = f.read()
        ids = {name: set(re.findall(r'\bid="([^"]*)"', t)) for name, t in text.items()}
        for name, t in text.items():
            dead = [h for h in re.findall(r'href="([^"]*)"', t) if not leads(h, name, ids)]
            tally.check(not dead, name, 'has links that lead nowhere:', dead[:5])
            tally.check('<script' not in t and 'src="http' not in t, name, 'wants a script or the network')
        for page in pages:
            tally.check('href="%s.%s.html"' % page in text.get('index.html', ''), 'index.html does not name', page)


def leads(href, name, ids):
    if re.match(r'https?://|mailto:', href):
        return True
    to, _, at = href.partition('#')
    return (to or name) in ids and (not at or at in ids[to or name])


def main():
    p = argparse.ArgumentParser()
    p.add_argument('--update', action='store_true')
    p.add_argument('--build', required=True)
    p.add_argument('names', nargs='*', help='pages, without ckpt- and section: tutorial-cluster, mem ...')
    a = p.parse_args()
    tally = Tally()
    found = 0
    for path in sorted(glob.glob(os.path.join(ROOT, 'man', '*.[0-9]'))):
        with open(path, encoding='utf-8') as f:
            has = '-tutorial-' in path or re.search(r'^\.\\" needs: ', f.read(), re.M)
        if has and (not a.names or any('ckpt-%s.' % n in path for n in a.names)):
            samples(path, os.path.abspath(a.build), tally, a.update)
            found += 1
    links(tally)
    python_page(tally)
    compared(tally)
    site(references(tally), tally)
    print('doc: %d passed, %d failed' % (tally.passed, tally.failed))
    return 1 if tally.failed and not a.update or not found else 0


sys.exit(main())
