#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""DeepSpeed goes on from disks of its machines' own, on which `mpirun ckpt reshard --local --local-target` has put what each needs.

    local_disks.py --bin build/bin FIXTURES [-v]

The fixture's shards are dealt over as many machines as the new run has ranks (mount and host-name namespaces: each has its own
folder under one path).  Each rank of the real DeepSpeed, with `use_node_local_storage`, then sees its machine's folder only; what it
holds and the losses of the next steps are those of reshard_resume.py.
"""
import os
import shutil
import subprocess
import sys

os.environ['DS_ACCELERATOR'] = 'cpu'
try:
    import checks
    import ds_harness
    import ranks
    import reshard_resume
except ImportError:
    print('interop local disks: skipped (no torch and DeepSpeed)')
    sys.exit(0)
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'mpi'))
import local

# Fixture, machines, stage
CASES = (('z1_bf16_w3_groups', 3, 1), ('z1_bf16_w3_groups', 2, 2), ('z3_fp32_w2_frozen', 2, 3), ('z2_fp16_w4_gas3', 2, 3), ('z3_bf16_w5_odd', 3, 2))


def one(a, tmp, name, machines, stage):
    path = os.path.join(a.fixtures, name)
    e = ds_harness.read_expected(path)
    work = os.path.join(tmp, '%s_%d_%d' % (name, machines, stage))
    os.makedirs(work)
    local.prepare(work)
    local.deal(os.path.join(path, e['checkpoint']), work, machines)
    status, _, text = local.run(work, machines, [os.path.abspath(a.bin) + '/ckpt', 'reshard', '--local', '--local-target', 'here/ckpt', 'here/out', '--world',
                                                 str(machines), '--stage', str(stage)])
    if status:
        return ['status %d: %s' % (status, text)]
    original = reshard_resume.original_of(name, path, e, stage)
    r = ds_harness.run_one(ds_harness.Case(name, path, work + '/m{rank}/out', machines, stage, whole=e['dtype'] != 'fp32',
                                           config={'checkpoint': {'use_node_local_storage': True}}))
    shutil.rmtree(work)
    if r.error:
        return ['DeepSpeed: ' + ds_harness.short(r.error)]
    own = e['model']['kind'] == 'odd' or e['dtype'] != 'fp32'
    return reshard_resume.held_differ(r, original) + reshard_resume.run_differs(name, e, r, original, original.losses if own else e['resume']['losses'])


def main():
    a = checks.arguments('fixtures')
    tally = checks.Tally(a.verbose)
    if not shutil.which('mpirun') or subprocess.run(['unshare', '-mu', 'hostname', 'm0'], capture_output=True).returncode:
        print('interop local disks: 0 passed, 0 failed: skipped, no mpirun, or namespaces are not allowed here')
        return 0
    ranks.prepare()
    with checks.scratch() as tmp:
        for name, machines, stage in CASES:
            if not os.path.isdir(os.path.join(a.fixtures, name)):
                tally.add(name, ['the fixture is absent'])
                continue
            tally.call('%s on %d disks, stage %d' % (name, machines, stage), one, a, tmp, name, machines, stage)
    return tally.end('interop local disks')


if __name__ == '__main__':
    sys.exit(main())
