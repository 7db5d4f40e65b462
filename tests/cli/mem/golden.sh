# SPDX-License-Identifier: Apache-2.0
# Every recorded estimate of DeepSpeed's own functions, through --json.
python3 - "$FIXTURES"/golden/memory_estimates.json <<'EOF'
import json
import subprocess
import sys

cases = json.load(open(sys.argv[1]))['cases']
right = 0
for c in cases:
    stage = str(c['stage'])
    cmd = ['ckpt', 'mem', '--json', '--stage', stage, '--params', str(c['total_params']),
           '--num-gpus', str(c['gpus_per_node']), '--num-nodes', str(c['nodes'])]
    if 'largest_layer_params' in c:
        cmd += ['--largest-layer', str(c['largest_layer_params'])]
    out = json.loads(subprocess.run(cmd, check=True, stdout=subprocess.PIPE).stdout)
    keys = ['offload_optimizer'] + (['offload_param', 'zero_init'] if stage == '3' else [])
    same = [e for e in out['estimates'] if all(e[k] == c[k] for k in keys)]
    got = [(e['cpu_bytes'], e['gpu_bytes']) for e in same]
    if got == [(c['cpu_bytes'], c['gpu_bytes'])]:
        right += 1
    else:
        print('differs:', c, got)
print(right, 'of', len(cases), 'estimates are equal')
EOF
