# SPDX-License-Identifier: Apache-2.0
"""A model folder over another one: at every instant readers see the old model, the new one, or (only where files beside the
weights change, or a file can have one name only) none.  Never weights of both, nor weights beside the other's configuration."""
import json
import os
import re
import shutil
import signal
import sys

from common import differs, run, tree, verdict

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'golden'))
from readers import read_safetensors, read_torch

HEADS = ('model.safetensors', 'model.safetensors.index.json', 'pytorch_model.bin', 'pytorch_model.bin.index.json')
KINDS = {'single': ['--to', 'hf'], 'shards': ['--to', 'hf', '--max-shard-size', '3KB'],
         'fewer': ['--to', 'hf', '--max-shard-size', '5KB'], 'bin': ['--to', 'hf-bin'],
         'bins': ['--to', 'hf-bin', '--max-shard-size', '3KB'], 'ranks': ['--to', 'hf-sharded', '--world', '3'],
         'pair': ['--to', 'hf-sharded', '--world', '2', '--max-shard-size', '3KB'],
         'pipe': ['--to', 'hf'], 'pipes': ['--to', 'hf', '--max-shard-size', '3KB']}
RANKS = re.compile(r'shard-(\d{5})-model-(\d{5})-of-(\d{5})\.safetensors$')


def view_ranks(folder, names):
    """What is read of pieces for each rank; None: some are seen to be missing; text: files that do not belong together."""
    found, pieces = [tuple(map(int, RANKS.match(n).groups())) for n in names if RANKS.match(n)], {}
    if len({of for _, _, of in found}) > 1 or len(found) < sum(n.endswith('.safetensors') for n in names):
        return 'files of two models'
    if {r for r, _, _ in found} != set(range(1, max(found)[0] + 1)) or len({n for _, n, _ in found}) < found[0][2]:
        return None
    for path in (os.path.join(folder, n) for n in names if RANKS.match(n)):
        with open(path, 'rb') as f:
            header = json.loads(f.read(int.from_bytes(f.read(8), 'little')))
        info = json.loads(header['__metadata__']['DCP_SHARDING_INFO'])
        for k, v in read_safetensors(path)[0].items():
            pieces.setdefault(k, []).append((info[k]['saved_offsets'][:1], v))
    out = {}
    for k, all_ in pieces.items():
        all_.sort(key=lambda p: p[0])
        rows = 0
        for at, v in all_:
            if at and at[0] != rows:
                return None if at[0] > rows else 'rows of two models'
            rows += v[1][0] if at else 0
        out[k] = [v[:3] for _, v in all_]
    return out, None


def view(folder):
    """What loaders make of a folder: values by name, and the configuration; None: they find no model; text: they fail."""
    names = os.listdir(folder)
    if 'model_index.json' in names:
        parts = {c: view(os.path.join(folder, c)) for c in ('unet', 'vae')}
        odd = [c for c, v in parts.items() if not isinstance(v, tuple)]
        return 'component %s: %s' % (odd[0], parts[odd[0]]) if odd else (parts, None)
    if any(RANKS.match(n) for n in names):
        return view_ranks(folder, names)
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
        pipeline = 'p_' if new.startswith('pipe') else ''
        sources = [os.path.join(tmp, 'set_src', pipeline + x) for x in ('old', 'other' if config else 'new')]
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
        for part in 'unet', 'vae':
            shutil.copytree(out, os.path.join(tmp, 'set_src', 'p_' + name, part))
        with open(os.path.join(tmp, 'set_src', 'p_' + name, 'model_index.json'), 'w') as f:
            json.dump({'unet': ['diffusers', 'A'], 'vae': ['diffusers', 'B']}, f)


def test(a, tmp):
    sources(a, tmp)
    cases = ((['single'], 'shards', False), (['shards'], 'shards', False), (['shards'], 'single', False),
             (['bin', 'shards', 'single'], 'shards', False), (['shards'], 'shards', True), (['bin', 'shards'], 'single', True),
             (['ranks'], 'pair', False), (['pipes'], 'pipe', False))
    more = ((['single'], 'single', False), (['fewer'], 'shards', False), (['bins'], 'bins', False), (['single'], 'bin', False),
            (['shards'], 'bins', False), (['bin'], 'shards', False), (['bins', 'shards'], 'shards', False), ([], 'shards', False),
            (['single'], 'single', True), (['bins'], 'shards', True), (['pair'], 'ranks', False), (['ranks'], 'ranks', False),
            (['single'], 'ranks', False), ([], 'pair', False), (['pipe'], 'pipes', True), (['pipes'], 'pipes', False), ([], 'pipes', False))
    for old, new, config in cases if a.some else cases + more:
        case = Case(a, tmp, old, new, config)
        # in a folder of pieces, or of components, all of them count, so that none may be there while they change
        dark = config or new in ('ranks', 'pair', 'pipe', 'pipes')
        case.killed({}, dark)
        if (old, new) == (['shards'], 'shards') or not a.some:
            case.killed({'IOSHIM_FLAGS': '1'}, dark)
            case.killed({'IOSHIM_NO_LINKS': '1'}, True)
    for old, new, config in ((['shards'], 'shards', False), (['single'], 'shards', False), (['bins', 'single'], 'single', True),
                             (['ranks'], 'pair', False), (['pipes'], 'pipe', False)):
        Case(a, tmp, old, new, config).fails(7 if a.some else 1)
