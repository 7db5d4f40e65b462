#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Make the pictures of `ckpt report` that README shows, with Chromium: tools/report/pictures/report-run.png and report-map.png.

    screenshots.py --bin build/bin --gen build/gen_zero [--out tools/report/pictures] FIXTURES

The first is of a run that zerotrain trains here, one of whose checkpoints was cut short; the second of a made checkpoint of 64 ranks.
"""
import argparse
import glob
import os
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from chrome import Chrome  # noqa: E402

MOST = 150000


def train(program, fixtures, folder):
    """A run of some checkpoints with its metrics."""
    data, run = os.path.join(fixtures, 'sentiment'), os.path.join(folder, 'run')
    subprocess.run([program, '--deepspeed_config', os.path.join(data, 'ds_config.json'), '--model', data, '--vocab', os.path.join(data, 'vocab.txt'),
                    '--seq', '40', '--threads', '1', '--data', os.path.join(data, 'train.tsv'), '--dropout', '--max-steps', '120', '--save-every', '20',
                    '--save', run, '--metrics', os.path.join(folder, 'metrics.jsonl'), '--quiet'], check=True)
    os.replace(os.path.join(folder, 'metrics.jsonl'), os.path.join(run, 'metrics.jsonl'))
    part = sorted(glob.glob(os.path.join(run, 'global_step80', '*optim_states.pt')))[0]
    os.truncate(part, os.path.getsize(part) // 2)
    return run


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('--bin', required=True)
    parser.add_argument('--gen', required=True)
    parser.add_argument('--out', default='tools/report/pictures')
    parser.add_argument('fixtures')
    args = parser.parse_args()
    os.makedirs(args.out, exist_ok=True)
    ckpt = os.path.abspath(os.path.join(args.bin, 'ckpt'))
    chrome = Chrome()
    try:
        with tempfile.TemporaryDirectory() as folder:
            train(os.path.join(args.bin, 'zerotrain'), args.fixtures, folder)
            subprocess.run([os.path.abspath(args.gen), '--stage', '3', '--world', '64', '--layers', '12', '--width', '256', '--vocab', '5000', '--context',
                            '128', os.path.join(folder, 'gpt2')], check=True, capture_output=True)
            subprocess.run([ckpt, 'report', '-q', '-o', 'run.html', 'run'], cwd=folder, check=True)
            subprocess.run([ckpt, 'report', '-q', '--stats', '-o', 'map.html', 'gpt2'], cwd=folder, check=True)
            made = []
            chrome.open(os.path.join(folder, 'run.html'), 1100, 1000)
            box = 'document.querySelector("#%s").getBoundingClientRect().%s + scrollY'
            top, end = chrome.run(box % ('checkpoints', 'top')), chrome.run(box % ('layers', 'top'))
            made.append(('report-run.png', chrome.picture(os.path.join(args.out, 'report-run.png'), (0, top, 1100, min(end - top, 1100)))))
            chrome.open(os.path.join(folder, 'map.html'), 1100, 1000)
            chrome.dark(True)
            chrome.run('[...document.querySelectorAll("#rows button")].find((b) => b.textContent.includes("h.3.mlp.c_fc.weight")).click()')
            chrome.run('[...document.querySelectorAll("#one button")][0].click(); document.getElementById("out").click();'
                       'document.getElementById("out").click(); document.getElementById("canvas").blur()')
            chrome.frame()
            top, end = chrome.run(box % ('in', 'top')) - 10, chrome.run(box % ('one', 'bottom')) + 10
            made.append(('report-map.png', chrome.picture(os.path.join(args.out, 'report-map.png'), (0, top, 1100, min(end - top, 1400)))))
    finally:
        chrome.close()
    for name, size in made:
        print('%s: %d bytes' % (name, size))
    return any(size > MOST for _, size in made)


if __name__ == '__main__':
    sys.exit(main())
