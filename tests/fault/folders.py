# SPDX-License-Identifier: Apache-2.0
"""Targets that are folders (ckpt reshard): whatever fails or is killed at whatever point, the tag folder is the old one or the new one,
`latest` names a complete one, a failure that is reported leaves nothing behind, and the same command completes what was killed."""
import os
import random
import shutil
import signal
import subprocess
import time

from common import differs, run, tree, turns, verdict

TAG = 'global_step4'
STAGING = '.%s.ckpt-partial' % TAG
OPS = 'open,read,pread,write,pwrite,fsync,close,rename,ftruncate,fallocate,mkdir,unlink'


class Case:
    """A command, what its output folder holds before, and what it must hold after."""
    tag, pointer, first, text, calls = TAG, 'latest', 'global_step1', 'global_step1', 60
    # over an old tag, without an exchange of names, and how calls fail; few: CI tries one of so many
    faults = ((False, False, ('EIO', 'ENOSPC', 'EINTR', 'short')), (True, False, ('EIO', 'EINTR')), (True, True, ('EIO',)))
    kills, few = ((False, False), (True, False), (True, True)), 1

    def __init__(self, a, tmp, src, over, flags=False, world=3):
        self.over, self.out, self.src = over, os.path.join(tmp, 'run'), src
        self.shim = {'LD_PRELOAD': os.path.abspath(a.shim), 'IOSHIM_OP': OPS, 'IOSHIM_PATH': self.out}  # reading is faulted in run.py
        if flags:
            self.shim['IOSHIM_FLAGS'] = '1'
        self.cmd = [os.path.join(a.bin, 'ckpt'), 'reshard', '-q', '--jobs', '1', '--world', str(world), *self.options(), src, self.out]
        if over:
            self.cmd.append('--force')
        self.label = '%s: %s%s' % (self.pointer, 'over an old tag' if over else 'new tag', ', no exchange' if flags else '')
        self.reset()
        self.before = tree(self.out)
        rc, err = run(self.cmd)
        assert rc == 0, err
        self.after = tree(self.out)
        self.source = tree(src)
        assert self.after[self.pointer] != self.before[self.pointer] and self.after[self.tag] == 'folder'

    @staticmethod
    def options():
        return ['--stage', '3']

    def reset(self):
        """The old state: an old tag that `latest` names, and perhaps one that is to be replaced."""
        shutil.rmtree(self.out, ignore_errors=True)
        for tag in (self.first, self.tag) if self.over else (self.first,):
            os.makedirs(os.path.join(self.out, tag, 'sub'))
            with open(os.path.join(self.out, tag, 'sub', 'rank0.pt'), 'w') as f:
                f.write('old ' + tag)
        with open(os.path.join(self.out, self.pointer), 'w') as f:
            f.write(self.text)

    def count(self, tmp):
        path = os.path.join(tmp, 'count')
        self.reset()
        rc, err = run(self.cmd, dict(self.shim, IOSHIM_COUNT=path))
        assert rc == 0 and not differs(tree(self.out), self.after), err
        calls = int(open(path).read())
        assert calls > self.calls, calls
        return calls

    def staging(self):
        return '.%s.ckpt-partial' % self.tag

    def part(self, found, tag):
        return {k: v for k, v in found.items() if k == tag or k.startswith(tag + '/')}

    def promise(self, found, flags=False):
        """What holds at any moment, whatever was killed."""
        if differs(self.part(found, self.first), self.part(self.before, self.first)):
            return 'the other tag was touched'
        tag = self.part(found, self.tag)
        new = not differs(tag, self.part(self.after, self.tag))
        old = not differs(tag, self.part(self.before, self.tag))
        away = flags and not tag and self.staging() + '/old' in found  # two renames where one cannot do it
        if not new and not old and not away:
            return 'the tag folder is neither the old nor the new one'
        if found.get(self.pointer) not in (self.before[self.pointer], self.after[self.pointer]):
            return '`latest` is neither the old nor the new one'
        if found[self.pointer] == self.after[self.pointer] and not new:
            return '`latest` names a tag that is not complete'
        return None


class Megatron(Case):
    """The same for a run of Megatron-Core, whose pointer holds a number."""
    tag, pointer, first, text, calls = 'iter_0000003', 'latest_checkpointed_iteration.txt', 'iter_0000001', '1', 60
    faults, kills, few = ((True, False, ('EIO', 'ENOSPC', 'EINTR', 'short')),), ((True, False),), 3

    @staticmethod
    def options():
        return ['--to', 'megatron']


def order(a, tmp, src):
    """What must be on the disk before what: read from a log of the calls."""
    for over, flags in ((False, False), (True, False), (True, True)):
        case = Case(a, tmp, src, over, flags)
        log = os.path.join(tmp, 'log')
        case.reset()
        rc, err = run(case.cmd, dict(case.shim, IOSHIM_LOG=log))
        assert rc == 0, err
        with open(log) as f:
            calls = [x.rstrip('\n').split(' ', 1) for x in f]
        os.unlink(log)
        new = os.path.join(case.out, STAGING, 'new')
        files = [os.path.join(new, k[len(TAG) + 1:]) for k, v in case.part(case.after, TAG).items() if v != 'folder']
        dirs = [new] + [os.path.join(new, k[len(TAG) + 1:]) for k, v in case.part(case.after, TAG).items() if v == 'folder' and k != TAG]

        def last(op, path, before=len(calls)):
            return max([i for i in range(before) if calls[i] == [op, path]], default=-1)

        named = last('rename', os.path.join(case.out, TAG))
        pointed = last('rename', os.path.join(case.out, 'latest'))
        journal, pointer = os.path.join(case.out, STAGING, 'journal'), os.path.join(case.out, STAGING, 'pointer')
        problem = None if 0 < named < pointed else 'the renames'
        for path in files:
            if not -1 < last('pwrite', path) < last('fsync', path, named):
                problem = problem or path + ' is not synced before it gets its name'
        for path in dirs:
            if last('fsync', path, named) < max(last('open', x) for x in files):
                problem = problem or path + ' is not synced after the last file in it'
        if not last('pwrite', journal) < last('fsync', journal, named):
            problem = problem or 'the journal is not synced before the rename'
        if not -1 < last('write', pointer) < last('fsync', pointer, named):
            problem = problem or 'the text of `latest` is not synced before the rename'
        if not named < last('fsync', case.out, pointed):
            problem = problem or 'the run folder is not synced between the renames'
        if not pointed < last('fsync', case.out):
            problem = problem or 'the run folder is not synced after the last rename'
        if last('unlink', journal) < last('fsync', case.out):
            problem = problem or 'the journal goes too early'
        verdict(case.label + ': order of syncs', problem)
        if len([x for x in calls if x[0] == 'fsync']) > 2 * len(files) + len(dirs) + 20:
            verdict(case.label + ': number of syncs', 'too many')


def faults(a, tmp, src, kind_of=Case):
    """Every counted system call fails once."""
    for over, flags, kinds in kind_of.faults:
        case = kind_of(a, tmp, src, over, flags)
        calls = case.count(tmp)
        for way, kind in enumerate(kinds):
            for n in turns(a.some, way, kind_of.few * 2 * len(kinds), calls):
                case.reset()
                rc, err = run(case.cmd, dict(case.shim, IOSHIM_NTH=str(n), IOSHIM_KIND=kind))
                problem = differs(tree(case.out), case.after if rc == 0 else case.before)
                if not problem and rc not in (0, 5, 7):
                    problem = 'exit status %d' % rc
                if not problem and kind in ('EINTR', 'short') and rc:
                    problem = 'fails, though the call may be repeated'
                if not problem and rc and len(err.split('\n')) != 1:
                    problem = 'several lines'
                verdict('%s: %s at call %d of %d: exit %d: %s' % (case.label, kind, n, calls, rc, err), problem)
        verdict('the source', differs(tree(src), case.source))


def kills(a, tmp, src, kind_of=Case):
    """SIGKILL at every counted system call, writes half done; then the same command again."""
    for way, (over, flags) in enumerate(kind_of.kills):
        case = kind_of(a, tmp, src, over, flags)
        calls = case.count(tmp)
        for n in turns(a.some, way, kind_of.few * 3, calls):
            case.reset()
            env = dict(case.shim, IOSHIM_NTH=str(n), IOSHIM_KIND='kill')
            rc, err = run(case.cmd, env)
            found = tree(case.out)
            problem = 'exit status %d' % rc if rc != -signal.SIGKILL else case.promise(found, flags)
            done = not differs({k: v for k, v in found.items() if not k.startswith(case.staging())}, case.after)
            rc, err = run(case.cmd)
            if not problem and rc and not (rc == 2 and done and not over):
                problem = 'the next run: exit %d: %s' % (rc, err)
            if not problem:
                problem = differs(tree(case.out), case.after)
            verdict('%s: killed at call %d of %d' % (case.label, n, calls), problem)
        verdict('the source', differs(tree(src), case.source))


def listed(out):
    """Names and inodes of the files that the journal of a killed run lists."""
    try:
        with open(os.path.join(out, STAGING, 'journal'), errors='replace') as f:
            names = [x.split(' ', 5)[5].rstrip('\n') for x in f if x[9:14] == 'file ' and x.endswith('\n')]
        return {x: os.stat(os.path.join(out, STAGING, 'new', x)).st_ino for x in names}
    except OSError:
        return {}


def random_kills(a, tmp, src):
    """Killed at random calls while four threads write, again and again, until a run is through."""
    case = Case(a, tmp, src, True, world=12)
    cmd = case.cmd = [x if x != '1' else '4' for x in case.cmd]
    for _ in range(3):
        case.reset()
        rc, err = run(cmd)
        verdict('four threads', err if rc else differs(tree(case.out), case.after))
    calls = case.count(tmp)
    rng, kept, killed, rounds, wanted = random.Random(1), 0, 0, 0, 15 if a.some else 60
    while killed < wanted and rounds < 2 * wanted:
        case.reset()
        rounds += 1
        old = {}
        for _ in range(4):
            rc, err = run(cmd, dict(case.shim, IOSHIM_NTH=str(int((0.2 + 0.8 * rng.random()) * calls)), IOSHIM_KIND='kill'))
            if rc == 0:
                old = {}
                break
            killed += 1
            found = tree(case.out)
            problem = 'exit status %d' % rc if rc != -signal.SIGKILL else case.promise(found)
            if not differs(case.part(found, TAG), case.part(case.after, TAG)):
                old = {}   # the new tag is in its place: what lies in the staging folder is the old one
                verdict('killed at the end, run %d' % killed, problem)
                break
            now = listed(case.out)
            if not problem and any(now.get(x, i) != i for x, i in old.items() if x in now):
                problem = 'a file that was kept was written again'
            verdict('killed, run %d' % killed, problem)
            kept += sum(now.get(x) == i for x, i in old.items())
            old = now
        rc, err = run(cmd)
        problem = 'exit %d: %s' % (rc, err) if rc else differs(tree(case.out), case.after)
        for x, inode in old.items():
            path = os.path.join(case.out, TAG, x)
            if not problem and os.stat(path).st_ino != inode:
                problem = '%s was finished, but written again' % x
            kept += 1
        verdict('after kills, round %d' % rounds, problem)
    print('folders: %d runs killed, %d finished files kept by the next ones' % (killed, kept))
    verdict('files were kept', None if kept > wanted // 3 and killed >= wanted else 'only %d, of %d killed runs' % (kept, killed))


def interrupts(a, tmp, src):
    """SIGINT and SIGTERM are reported: nothing stays."""
    case = Case(a, tmp, src, True)
    rng = random.Random(2)
    for i in range(6 if a.some else 20):
        how = (signal.SIGINT, signal.SIGTERM)[i % 2]
        case.reset()
        p = subprocess.Popen(case.cmd, stderr=subprocess.DEVNULL)
        time.sleep(0.02 + rng.random() * 0.2)
        p.send_signal(how)
        rc = p.wait()
        now = tree(case.out)
        problem = differs(now, case.after if rc == 0 else case.before)
        # all had been done, and said, when it came
        if rc == -how and not differs(now, case.after):
            problem = None
        verdict('signal %d: exit %d' % (how, rc), problem if rc in (0, -how) else 'exit status')


def stopped(case, calls, i):
    """Start the command; it stops somewhere in the middle of its writing."""
    env = dict(os.environ, **case.shim, IOSHIM_NTH=str(calls * (i + 2) // 8), IOSHIM_KIND='stop')
    p = subprocess.Popen(case.cmd, stderr=subprocess.DEVNULL, env=env)
    _, status = os.waitpid(p.pid, os.WUNTRACED)
    assert os.WIFSTOPPED(status) and os.path.exists(os.path.join(case.out, STAGING, 'new'))
    return p


def two_runs(a, tmp, src):
    case, other = Case(a, tmp, src, True), Case(a, tmp, src, True, world=2)
    calls = case.count(tmp)
    for i in range(4):
        case.reset()
        p = stopped(case, calls, i)
        rc, err = run((case, other)[i % 2].cmd)
        problem = None if rc == 2 and 'another run' in err else 'the second run: exit %d: %s' % (rc, err)
        p.send_signal(signal.SIGCONT)
        rc = p.wait()
        if not problem:
            problem = 'the first run: exit %d' % rc if rc else differs(tree(case.out), case.after)
        verdict('two runs at a time', problem)
    # what the one has left is of no use to the other
    for i in range(4):
        case.reset()
        p = stopped(case, calls, i)
        p.kill()
        p.wait()
        rc, err = run(other.cmd)
        verdict('leftovers of another command', 'exit %d: %s' % (rc, err) if rc else differs(tree(other.out), other.after))


def in_the_way(a, tmp, src):
    case = Case(a, tmp, src, True)
    plain = case.cmd[:-1]
    case.reset()
    rc, err = run(plain)
    verdict('an old tag without --force', differs(tree(case.out), case.before) if rc == 2 and '--force' in err else 'exit %d: %s' % (rc, err))
    # into the run that is read: never over the tag that is read, but beside it
    shutil.rmtree(case.out)
    shutil.copytree(src, case.out)
    before = tree(case.out)
    cmd = case.cmd[:-3] + [case.out, case.out, '--force']
    rc, err = run(cmd)
    verdict('over the tag that is read', differs(tree(case.out), before) if rc == 2 and 'input files' in err else 'exit %d: %s' % (rc, err))
    rc, err = run(cmd + ['--to-tag', 'other'])
    found = tree(case.out)
    problem = 'exit %d: %s' % (rc, err) if rc else differs({k: v for k, v in found.items() if not k.startswith('other') and k != 'latest'},
                                                          {k: v for k, v in before.items() if k != 'latest'})
    verdict('beside the tag that is read', problem or (None if open(os.path.join(case.out, 'latest')).read() == 'other' else '`latest`'))
    for size in (0, 1, 100, 1000, 5000):
        case.reset()
        rc, err = run(case.cmd, limit=size)
        verdict('files limited to %d bytes' % size, differs(tree(case.out), case.before) if rc == 7 else 'exit %d: %s' % (rc, err))
    # a folder made for a run that fails goes with it
    deep = os.path.join(tmp, 'new', 'deep')
    rc, err = run(case.cmd[:-2] + [deep], limit=1000)
    verdict('made folders are removed', None if rc == 7 and not os.path.exists(os.path.dirname(deep)) else 'exit %d: %s' % (rc, err))


def test(a, tmp, src):
    big = os.path.join(tmp, 'bigger')
    subprocess.run([a.gen, '--stage', '2', '--world', '2', '--layers', '4', '--width', '256', '--vocab', '4000', big], check=True,
                   stdout=subprocess.DEVNULL)
    order(a, tmp, src)
    faults(a, tmp, src)
    kills(a, tmp, src)
    megatron = os.path.join(a.fixtures, 'mcore_llama_distopt_dp2', 'ckpt')
    faults(a, tmp, megatron, Megatron)
    kills(a, tmp, megatron, Megatron)
    random_kills(a, tmp, big)
    interrupts(a, tmp, big)
    two_runs(a, tmp, big)
    in_the_way(a, tmp, src)
