# SPDX-License-Identifier: Apache-2.0
"""A model folder over another one: at every instant readers see the old model, the new one, or (only where files beside the
weights change, or a file can have one name only) none.  Never weights of both, nor weights beside the other's configuration."""
import json
import os
import shutil
import signal
import sys

from common import differs, run, tree, verdict

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'golden'))
from readers import read_safetensors, read_torch

HEADS = ('model.safetensors', 'model.safetensors.index.json', 'pytorch_model.bin', 'pytorch_model.bin.index.json')
KINDS = {'single': ['--to', 'hf'], 'shards': ['--to', 'hf', '--max-shard-size', '3KB'],
         'fewer': ['--to', 'hf', '--max-shard-size', '5KB'], 'bin': ['--to', 'hf-bin'],
         'bins': ['--to', 'hf-bin', '--max-shard-size', '3KB']}


def view(folder):
    """What loaders make of a folder: values by name, and the configuration; None: they find no model; text: they fail."""
    head = next((h for h in HEADS if os.path.exists(os.path.join(folder, h))), None)
    if not head:
        return None
    files = [head]
    if head.endswith('.json'):
        with open(os.path.join(folder, head)) as f:
            listed = json.load(f)['weight_map']
        files = sorted(set(listed.values()))
    out = {}
    for f in files:
        path = os.path.join(folder, f)
        if not os.path.exists(path):
            return 'the index leads to %s, which is not there' % f
        out.update(read_safetensors(path)[0] if 'safetensors' in f else read_torch(path))
    if head.endswith('.json') and not set(listed) <= set(out):
        return 'shards lack tensors'
    config = os.path.join(folder, 'config.json')
    return {k: v[:3] for k, v in out.items()}, open(config).read() if os.path.exists(config) else None


class Case:
    """Over a folder of models of some kinds, one of another kind and other values."""

    def __init__(self, a, tmp, old, new, config):
        self.label = '%s over %s%s' % (new, ' and '.join(old) or 'nothing', ', other configuration' if config else '')
        self.out, self.keep = os.path.join(tmp, 'set'), os.path.join(tmp, 'set_before')
        self.ckpt = os.path.join(a.bin, 'ckpt')
        sources = [os.path.join(tmp, 'set_src', x) for x in ('old', 'other' if config else 'new')]
        shutil.rmtree(self.keep, ignore_errors=True)
        os.mkdir(self.keep)
        with open(os.path.join(self.keep, 'notes.txt'), 'w') as f:
            f.write('of the user')
        for kind in old:
            self.make(sources[0], self.keep, kind, ['--no-side-files'] if kind != old[-1] else [])
        self.cmd = [self.ckpt, 'convert', '-q', '--jobs', '1', '--force', sources[1], self.out] + KINDS[new]
        self.shim = {'LD_PRELOAD': os.path.abspath(a.shim), 'IOSHIM_PATH': tmp}
        self.reset()
        self.before, self.old = tree(self.keep), view(self.keep)
        rc, err = run(self.cmd)
        self.after, self.new = tree(self.out), view(self.out)
        problem = err if rc else None
        if not problem and (not isinstance(self.new, tuple) or self.new == self.old):
            problem = 'readers do not see the new model: %s' % (self.new if isinstance(self.new, str) else 'the old one')
        if not problem and 'notes.txt' not in self.after:
            problem = 'a file of the user is gone'
        verdict(self.label, problem)

    def make(self, src, out, kind, more):
        # an older kind beside must not be taken for one that is to be replaced
        part = out + '.part'
        shutil.rmtree(part, ignore_errors=True)
        rc, err = run([self.ckpt, 'convert', '-q', src, part] + KINDS[kind] + more)
        assert rc == 0, err
        for f in os.listdir(part):
            shutil.move(os.path.join(part, f), os.path.join(out, f))

    def reset(self):
        shutil.rmtree(self.out, ignore_errors=True)
        shutil.copytree(self.keep, self.out)

    def killed(self, env, dark):
        """Killed at every name that changes; then the same command again, or ckpt clean."""
        n, cmd = 0, self.cmd + ['--no-fsync']  # a kill loses nothing that was written
        while True:
            n += 1
            self.reset()
            rc, err = run(cmd, dict(self.shim, IOSHIM_OP='rename,unlink,link', IOSHIM_KIND='kill', IOSHIM_NTH=str(n), **env))
            now = view(self.out)
            allowed = [self.old, self.new] + ([None] if dark else [])
            problem = None if rc in (0, -signal.SIGKILL) else 'exit %d: %s' % (rc, err)
            if not problem and now not in allowed:
                problem = 'a mixture: %s' % (now if isinstance(now, str) else 'nothing' if now is None else 'loads')
            if not problem and n % 2:
                crc, err = run([self.ckpt, 'clean', '-q', '--force', self.out])
                found = tree(self.out)
                if crc or (differs(found, self.before) and differs(found, self.after)):
                    problem = 'after ckpt clean (%d): %s' % (crc, err or differs(found, self.after))
                if not problem and now is not None and view(self.out) != now:
                    problem = 'ckpt clean made another model of it'
            again, err = run(cmd)
            if not problem:
                problem = 'the next run: exit %d: %s' % (again, err) if again else differs(tree(self.out), self.after)
            verdict('%s: killed at %d %s' % (self.label, n, env), problem)
            if rc == 0:
                break
        verdict(self.label + ': kills', None if n > 5 else 'only %d' % n)

    def fails(self, step):
        """Every call that changes a name, or syncs, fails once (every step-th): all is as it was."""
        for n in range(1, 1000, step):
            self.reset()
            rc, err = run(self.cmd, dict(self.shim, IOSHIM_OP='rename,fsync,link,unlink,mkdir', IOSHIM_KIND='EIO', IOSHIM_NTH=str(n)))
            found = tree(self.out)
            hidden = [x for x in found if x.startswith('.')]
            problem = differs(found, self.after if rc == 0 else self.before)
            if rc and view(self.out) == self.old and problem and hidden:
                # what could not even be taken back is finished by the next run
                problem = None if 'again' in err else problem
            if not problem and rc not in (0, 7):
                problem = 'exit %d: %s' % (rc, err)
            verdict('%s: EIO at %d: exit %d: %s' % (self.label, n, rc, err), problem)
            if rc == 0 and n > 60:
                break


def sources(a, tmp):
    """Two models of equal names and shapes, and the second once more with another configuration."""
    fixture = os.path.join(os.path.abspath(a.fixtures), 'z1_bf16_w2_tags', 'ckpt')
    os.mkdir(os.path.join(tmp, 'set_src'))
    for name, tag, config in (('old', 'first', 'a'), ('new', 'global_step2', 'a'), ('other', 'global_step2', 'b')):
        out = os.path.join(tmp, 'set_src', name)
        rc, err = run([os.path.join(a.bin, 'ckpt'), 'convert', '-q', fixture, out, '--to', 'hf', '-t', tag])
        assert rc == 0, err
        with open(os.path.join(out, 'config.json'), 'w') as f:
            json.dump({'model_type': config}, f)


def test(a, tmp):
    sources(a, tmp)
    cases = ((['single'], 'shards', False), (['shards'], 'shards', False), (['shards'], 'single', False),
             (['bin', 'shards', 'single'], 'shards', False), (['shards'], 'shards', True), (['bin', 'shards'], 'single', True))
    more = ((['single'], 'single', False), (['fewer'], 'shards', False), (['bins'], 'bins', False), (['single'], 'bin', False),
            (['shards'], 'bins', False), (['bin'], 'shards', False), (['bins', 'shards'], 'shards', False), ([], 'shards', False),
            (['single'], 'single', True), (['bins'], 'shards', True))
    for old, new, config in cases if a.some else cases + more:
        case = Case(a, tmp, old, new, config)
        case.killed({}, config)
        if (old, new) == (['shards'], 'shards') or not a.some:
            case.killed({'IOSHIM_FLAGS': '1'}, config)
            case.killed({'IOSHIM_NO_LINKS': '1'}, True)
    for old, new, config in ((['shards'], 'shards', False), (['single'], 'shards', False), (['bins', 'single'], 'single', True)):
        Case(a, tmp, old, new, config).fails(7 if a.some else 1)
