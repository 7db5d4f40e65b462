# SPDX-License-Identifier: Apache-2.0
"""Machines for tests: network namespaces on one bridge, each with an address, a host name and a folder of its own.

    with Machines(3, work) as m:            # root, iproute2 and util-linux
        m.mpirun(['1:2', '2:1'], words)      # ranks of machine 1 and 2, started through a remote shell as sshd would

WORK/here is machine K's own folder WORK/mK (a mount that only its processes have); all else of the file system is shared.
"""
import os
import shutil
import signal
import subprocess

NET = '10.88.77'
AGENT = '''#!/bin/sh
# What mpirun takes for ssh: agent [options] ADDRESS COMMAND...
while [ "${1#-}" != "$1" ]; do shift; done
k=${1##*.}
shift
exec %(enter)s "$k" sh -c "$*"
'''
ENTER = '''#!/bin/sh
# enter K COMMAND...: on machine K
k=$1
shift
exec ip netns exec %(name)s$k unshare -mu sh -c 'hostname %(name)s$0; mount --bind %(work)s/m$0 %(work)s/here; exec "$@"' "$k" "$@"
'''


def missing():
    """Why there can be no machines here; None: there can."""
    for tool in ('ip', 'unshare', 'mpirun'):
        if not shutil.which(tool):
            return 'no ' + tool
    name = 'ckprobe%d' % os.getpid()
    if subprocess.run(['ip', 'netns', 'add', name], capture_output=True).returncode:
        return 'network namespaces are not allowed here'
    link = 'ckp%d' % (os.getpid() % 10000)
    veth = subprocess.run(['ip', 'link', 'add', link, 'type', 'veth', 'peer', 'name', 'eth0', 'netns', name], capture_output=True)
    subprocess.run(['ip', 'link', 'del', link], capture_output=True)
    subprocess.run(['ip', 'netns', 'del', name], capture_output=True)
    if veth.returncode:
        return 'network namespaces cannot be connected here'
    return None if not subprocess.run(['unshare', '-mu', 'true'], capture_output=True).returncode else 'mount namespaces are not allowed here'


class Machines:
    def __init__(self, n, work):
        self.n, self.work = n, os.path.abspath(work)
        self.name = 'ckm%d-' % (os.getpid() % 10000)
        self.bridge = 'ckb%d' % (os.getpid() % 10000)
        self.ip = lambda *a: subprocess.run(['ip', *a], check=True, capture_output=True)

    def __enter__(self):
        try:
            self.up()
        except BaseException:
            self.down()
            raise
        return self

    def __exit__(self, *_):
        self.down()

    def up(self):
        os.makedirs(self.work + '/here', exist_ok=True)
        self.ip('link', 'add', self.bridge, 'type', 'bridge')
        self.ip('link', 'set', self.bridge, 'up')
        for k in range(1, self.n + 1):
            ns, link = self.name + str(k), '%sv%d' % (self.bridge, k)
            os.makedirs('%s/m%d' % (self.work, k), exist_ok=True)
            self.ip('netns', 'add', ns)
            self.ip('link', 'add', link, 'type', 'veth', 'peer', 'name', 'eth0', 'netns', ns)
            self.ip('link', 'set', link, 'master', self.bridge)
            self.ip('link', 'set', link, 'up')
            self.ip('-n', ns, 'addr', 'add', '%s.%d/24' % (NET, k), 'dev', 'eth0')
            self.ip('-n', ns, 'link', 'set', 'eth0', 'up')
            self.ip('-n', ns, 'link', 'set', 'lo', 'up')
        for name, text in (('enter', ENTER), ('agent', AGENT)):
            path = os.path.join(self.work, name)
            with open(path, 'w') as f:
                f.write(text % {'name': self.name, 'work': self.work, 'enter': self.work + '/enter'})
            os.chmod(path, 0o755)

    def down(self):
        for k in range(1, self.n + 1):
            self.kill(k)
            subprocess.run(['ip', 'netns', 'del', self.name + str(k)], capture_output=True)
            subprocess.run(['ip', 'link', 'del', '%sv%d' % (self.bridge, k)], capture_output=True)
        subprocess.run(['ip', 'link', 'del', self.bridge], capture_output=True)

    def processes(self, k):
        p = subprocess.run(['ip', 'netns', 'pids', self.name + str(k)], capture_output=True, text=True)
        return [int(x) for x in p.stdout.split()]

    def kill(self, k):
        """The machine is gone: all of its processes at once."""
        for pid in self.processes(k):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass

    def mpirun(self, hosts, words, env=()):
        """hosts: 'K:RANKS'.  Starts on the first of them; the process, with pipes."""
        where = ','.join('%s.%s' % (NET, h) for h in hosts)
        n = sum(int(h.split(':')[1]) for h in hosts)
        return subprocess.Popen([self.work + '/enter', hosts[0].split(':')[0], 'mpirun', '-q', '--allow-run-as-root', '--bind-to', 'none',
                                 '--mca', 'plm_rsh_agent', self.work + '/agent', '--mca', 'oob_tcp_if_include', NET + '.0/24',
                                 '--mca', 'btl_tcp_if_include', NET + '.0/24', '--mca', 'btl', 'self,tcp', '--host', where, '-n', str(n)] + list(words),
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=self.work,
                                env=dict(os.environ, PMIX_MCA_gds='hash', OMPI_ALLOW_RUN_AS_ROOT='1', OMPI_ALLOW_RUN_AS_ROOT_CONFIRM='1', **dict(env)))
