# SPDX-License-Identifier: Apache-2.0
"""Ranks of DeepSpeed, forked from a process that has imported everything heavy (gloo, one thread a rank)."""
import atexit
import contextlib
import gc
import glob
import importlib
import io
import os
import signal
import sys
import tempfile
import time
import traceback
import warnings

os.environ.setdefault('DS_ACCELERATOR', 'cpu')
os.environ.setdefault('OMP_NUM_THREADS', '1')
os.environ.setdefault('PYTHONWARNINGS', 'ignore')


def prepare(builders=('ShareMemCommBuilder', 'CPUAdamBuilder', 'FusedAdamBuilder')):
    """Everything heavy once, before any fork (it is most of a small run); nothing here may start a thread."""
    os.environ['TORCHINDUCTOR_COMPILE_THREADS'] = '1'
    warnings.simplefilter('ignore')
    import torch
    torch.set_num_threads(1)
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        import deepspeed  # noqa: F401
        import safetensors.torch  # noqa: F401
        from deepspeed.accelerator import get_accelerator
        for name in ('torch._dynamo', 'torch._inductor.compile_fx', 'distutils.ccompiler',
                     'deepspeed.module_inject.auto_ep_layer', 'deepspeed.ops.op_builder.all_ops',
                     'deepspeed.runtime.zero.muon.muon_optimizer', 'deepspeed.runtime.zero.stage3'):
            with contextlib.suppress(ImportError):
                importlib.import_module(name)
        for name in builders:
            with contextlib.suppress(Exception):   # compiled once; what cannot be fails where it is needed
                get_accelerator().create_op_builder(name).load(verbose=False)
    share_pages()


def share_pages():
    """Exclude the objects that exist now from garbage collection.

    The collector writes to the header of each object, which would copy all of their memory pages in each forked child.
    """
    gc.collect()
    gc.freeze()
    atexit.register(gc.unfreeze)   # or nanobind reports at the end what was not collected


def prepare_torch():
    """The same for ranks that need no DeepSpeed: FSDP2 and DTensor import most of the compiler when they are first used."""
    os.environ['TORCHINDUCTOR_COMPILE_THREADS'] = '1'
    import torch
    torch.set_num_threads(1)   # OpenMP's threads do not live on in a forked child
    importlib.import_module('torch._dynamo')
    share_pages()


def port_of(pid):
    """DeepSpeed names its shared memory by it: two tests at once must not have the same."""
    return 10000 + pid % 50000


def ended(folder, rank):
    """The file that says that a rank did all of its work."""
    return os.path.join(folder, 'ended%d' % rank)


def end_together(world, rank, folder):
    """Say that this rank is through, and wait until all are.

    A rank that leaves while another still waits for its socket in the last barrier makes a thread of gloo raise there.
    """
    open(ended(folder, rank), 'w', encoding='utf-8').close()
    until = time.time() + 10
    while time.time() < until and not all(os.path.exists(ended(folder, r)) for r in range(world)):
        time.sleep(0.005)


def child(world, body, rank, folder):
    """One rank, in a forked process; never returns."""
    code = 1
    log = os.open(os.path.join(folder, 'log%d' % rank), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    os.dup2(log, 1)
    os.dup2(log, 2)
    try:
        import torch
        # torch renews its pool of threads at the first use after a fork, without a lock: here, before autograd's threads do
        torch.set_num_threads(1)
        os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(world), LOCAL_SIZE=str(world),
                          MASTER_ADDR='127.0.0.1', MASTER_PORT=str(port_of(os.getppid())))
        os.chdir(folder)
        store = 'file://%s/store' % folder
        torch.distributed.init_process_group('gloo', init_method=store, rank=rank, world_size=world)
        body(rank, os.path.join(folder, 'result'))
        torch.distributed.barrier()
        end_together(world, rank, folder)
        code = 0
    except BaseException:
        with open(os.path.join(folder, 'error%d' % rank), 'w', encoding='utf-8') as f:
            f.write(traceback.format_exc())
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def reap(pids, folder, timeout):
    """Wait for all; when one fails or time is out, end those left.  (The ranks that failed, is time out?).

    A rank that died after its work was done has not failed: its peers' exit can end it in a thread of gloo's.
    """
    left, failed, until = dict(pids), [], time.time() + timeout
    while left and not failed and time.time() < until:
        for pid in list(left):
            done, status = os.waitpid(pid, os.WNOHANG)
            if done:
                rank = left.pop(pid)
                if status and not os.path.exists(ended(folder, rank)):
                    failed.append(rank)
        time.sleep(0.01)
    late = bool(left) and not failed
    if left and failed:
        time.sleep(0.3)   # others may say more
    for pid in left:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    return failed, late


def run_ranks(world, body, timeout):
    """Call body(rank, file for the result) in each: (what rank 0 saved with torch, '') or (None, the error)."""
    import torch
    with tempfile.TemporaryDirectory() as folder:
        pids = {}
        for rank in range(world):
            sys.stdout.flush()
            pid = os.fork()
            if pid == 0:
                child(world, body, rank, folder)
            pids[pid] = rank
        failed, late = reap(pids, folder, timeout)
        for left in glob.glob('/dev/shm/deepspeed_allreduce_buffer_*_%d_*' % port_of(os.getpid())):
            os.unlink(left)
        for rank in failed:
            path = os.path.join(folder, 'error%d' % rank)
            if os.path.exists(path):
                return None, 'rank %d: %s' % (rank, open(path, encoding='utf-8').read().strip())
        if failed:
            log = open(os.path.join(folder, 'log%d' % failed[0]), errors='replace').read()
            return None, 'rank %d died: %s' % (failed[0], log[max(log.rfind('terminate called'), 0):][:600])
        if late:
            return None, 'hangs: no end after %d s' % timeout
        return torch.load(os.path.join(folder, 'result'), weights_only=False), ''
