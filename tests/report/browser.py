#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Pages of `ckpt report` in Chromium: they render without a word on the console, search, sort, zoom, and adapt to dark.

    browser.py --bin build/bin --gen build/gen_zero FIXTURES

Prints "report in chromium: N passed, N failed".  Where Chromium is not installed, does not start, or ends before its time, the rest
is left out, and the line before the last says so.
"""
import argparse
import os
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from chrome import Chrome, Gone  # noqa: E402
from run import HOSTILE, safetensors  # noqa: E402

SHOT = 'document.getElementById("canvas").toDataURL()'
WHERE = 'document.getElementById("where").textContent'
ROWS = 'document.querySelectorAll("#rows tr").length'
FOUND = 'document.getElementById("found").textContent'


class Failed(Exception):
    pass


def check(truth, text, *more):
    if not truth:
        raise Failed(text + ''.join(' %.300r' % (m,) for m in more))


class Tests:
    def __init__(self, chrome, args, folder):
        self.c, self.bin, self.gen, self.fixtures, self.folder = chrome, args.bin, args.gen, args.fixtures, folder

    def show(self, *words):
        page = os.path.join(self.folder, 'report.html')
        subprocess.run([os.path.join(self.bin, 'ckpt'), 'report', '-q', '-f', '-o', page, *words], check=True)
        self.c.open(page)
        self.c.until('document.documentElement.dataset.ready === "yes"')
        self.c.frame()

    def quiet(self):
        check(not self.c.errors, 'the console says', self.c.errors)
        check(all(u.startswith(('file:', 'data:')) for u in self.c.requests.values()), 'it asks for', self.c.requests)

    def search(self, text):
        self.c.run('{ const s = document.getElementById("search"); s.value = %r; s.dispatchEvent(new Event("input")); }' % text)
        self.c.frame()

    def test_phone(self):
        """On a phone pictures scroll in their frames, with texts that can be read, and the page does not."""
        c, run = self.c, os.path.join(self.fixtures, 'hf_trainer_llama_z3_bf16_w2', 'ckpt')
        self.show(run, os.path.join(run, 'global_step4'), '--stats')
        c.open(os.path.join(self.folder, 'report.html'), width=360)
        c.until('document.documentElement.dataset.ready === "yes"')
        c.frame()
        check(c.run('document.documentElement.scrollWidth') <= 360, 'the page is as wide as', c.run('document.documentElement.scrollWidth'))
        least = c.run('Math.min(...[...document.querySelectorAll("svg.picture text")].map(t => t.getBoundingClientRect().height))')
        check(least >= 9, 'the smallest text of a picture is high', least)

    def test_everything(self):
        """A run with curves, statistics and differences."""
        c, run = self.c, os.path.join(self.fixtures, 'hf_trainer_llama_z3_bf16_w2', 'ckpt')
        self.show(run, os.path.join(run, 'global_step4'), '--stats')
        check(c.run(ROWS) == 21, 'rows', c.run(ROWS))
        check(c.run('document.querySelectorAll("svg.picture").length') == 3, 'pictures')
        before = c.run(SHOT)
        check(len(set(before)) > 10, 'the map is empty')
        # search
        self.search('LAYERS.1')
        check(c.run(ROWS) == 9 and c.run(FOUND).startswith('9 of 21'), 'a search', c.run(FOUND))
        check(c.run(SHOT) != before, 'the map does not show what was found')
        self.search('*.layers.*norm.weight')
        check(c.run(ROWS) == 4, 'a pattern', c.run(FOUND))
        self.search('[(\\\\')
        check(c.run(ROWS) == 0, 'what is no pattern', c.run(FOUND))
        self.search('')
        check(c.run(SHOT) == before, 'the map stays as it was searched')
        # sort: by size, and back
        names = '[...document.querySelectorAll("#rows th")].map((e) => e.textContent).join()'
        first = c.run(names)
        c.run('[...document.querySelectorAll("#head button")].find((b) => b.textContent === "Size").click()')
        check(c.run('document.querySelector("[aria-sort=descending]").textContent') == 'Size', 'the sorted column')
        check(c.run(names) != first, 'sorted')
        # one tensor
        c.run('document.querySelector("#rows button").click()')
        c.frame()
        check(c.run('!document.getElementById("one").hidden && document.activeElement.tagName') == 'H3', 'details')
        check(c.run('document.querySelectorAll("#one svg rect.bar").length') > 3, 'a histogram')
        self.quiet()

    def test_map(self):
        """Zoom by buttons, wheel and keys; what is told of it; equal widths."""
        c = self.c
        self.show(os.path.join(self.fixtures, 'z3_bf16_w5_odd', 'ckpt'))
        all_shot, all_where = c.run(SHOT), c.run(WHERE)
        check('files 1 to' in all_where, 'the view', all_where)
        c.run('document.getElementById("in").click()')
        c.frame()
        check(c.run(SHOT) != all_shot and c.run(WHERE) != all_where, 'zoom in')
        c.run('document.getElementById("out").click()')
        c.frame()
        check(c.run(SHOT) == all_shot and c.run(WHERE) == all_where, 'zoom out')
        c.run('document.getElementById("canvas").focus()')
        for key, code in ('+', 187), ('+', 187), ('ArrowRight', 39), ('ArrowDown', 40):
            was = c.run(SHOT)
            c.key(key, code, key if len(key) == 1 else '')
            c.frame()
            check(c.run(SHOT) != was, 'the key ' + key)
        c.key('Home', 36)
        c.frame()
        check(c.run(SHOT) == all_shot, 'the key Home')
        c.key('n', 78, 'n')
        c.frame()
        check(not c.run('document.getElementById("one").hidden') and c.run('document.activeElement.id') == 'canvas', 'the next tensor')
        c.run('document.getElementById("fit").click(); document.getElementById("equal").click()')
        c.frame()
        check(c.run(SHOT) != all_shot, 'equal widths')
        c.run('document.getElementById("canvas").focus()')
        was = c.run(SHOT)
        c.run('{ const k = document.getElementById("canvas"), b = k.getBoundingClientRect(); k.dispatchEvent(new WheelEvent("wheel", '
              '{ deltaY: -100, clientX: b.left + 200, clientY: b.top + 100, bubbles: true, cancelable: true })); }')
        c.frame()
        check(c.run(SHOT) != was, 'the wheel')
        c.run('{ const k = document.getElementById("canvas"), b = k.getBoundingClientRect(); k.dispatchEvent(new PointerEvent("pointermove", '
              '{ clientX: b.left + 3, clientY: b.top + 3, bubbles: true })); }')
        check(' in ' in c.run(WHERE), 'what is under the pointer', c.run(WHERE))
        self.quiet()

    def test_dark(self):
        c = self.c
        self.show(os.path.join(self.fixtures, 'z1_bf16_w2_tags', 'ckpt'))
        ground = 'getComputedStyle(document.body).backgroundColor'
        light, shot = c.run(ground), c.run(SHOT)
        c.dark(True)
        check(light == 'rgb(255, 255, 255)' and c.run(ground) == 'rgb(20, 23, 27)', 'the ground', light, c.run(ground))
        check(c.run(SHOT) != shot, 'the map stays light')
        c.dark(False)
        check(c.run(SHOT) == shot, 'light again')
        self.quiet()

    def test_hostile(self):
        """Names that would be programs are text; and a program that came in would not run."""
        c, path = self.c, os.path.join(self.folder, 'x.safetensors')
        names = [n for n in HOSTILE if n]
        safetensors(path, [(n, 'F32', [2], b'\0' * 8) for n in names])
        self.show(path)
        check(c.run('document.title') == 'x.safetensors - checkpoint report', 'the title', c.run('document.title'))
        check(c.run(ROWS) == len(names) and c.run('document.querySelectorAll("img, b").length') == 0, 'elements of a name')
        for k in range(len(names)):
            c.run('document.querySelectorAll("#rows button")[%d].click()' % k)
        c.frame()
        check(c.run('document.querySelectorAll("main img, main script").length') == 0, 'elements of a name')
        self.quiet()
        c.run('{ const s = document.createElement("script"); s.textContent = "window.owned = 1"; document.body.append(s); }')
        c.run('new Promise((done) => { const i = document.createElement("img"); i.onload = i.onerror = () => done(1); '
              'i.src = "https://example.invalid/x.png"; document.body.append(i); })')
        c.frame()
        check(c.run('window.owned === undefined'), 'a foreign script ran')
        check(not [u for u in c.requests.values() if u.startswith('http')], 'a foreign picture was asked for', c.requests)

    def test_many_ranks(self):
        c, folder = self.c, os.path.join(self.folder, 'many')
        subprocess.run([self.gen, '--stage', '3', '--world', '1024', '--layers', '83', '--width', '64', '--vocab', '500', '--context', '64',
                        '--sparse', folder], check=True, capture_output=True)
        self.show(folder)
        check(c.run(ROWS) == 100 and not c.run('document.getElementById("more").hidden'), 'rows')
        c.run('document.getElementById("more").click()')
        check(c.run(ROWS) == 600, 'more rows', c.run(ROWS))
        self.search('h.17.')
        check(c.run(ROWS) == 12, 'a search', c.run(FOUND))
        c.run('document.querySelector("#rows button").click(); for (let i = 0; i < 6; i++) document.getElementById("in").click()')
        c.frame()
        check('file' in c.run(WHERE), 'zoomed', c.run(WHERE))
        self.quiet()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('--bin', required=True)
    parser.add_argument('--gen', required=True)
    parser.add_argument('fixtures')
    args = parser.parse_args()
    passed = failed = 0
    chrome = None
    try:
        chrome = Chrome()
        for name in sorted(n for n in dir(Tests) if n.startswith('test_')):
            with tempfile.TemporaryDirectory() as folder:
                try:
                    getattr(Tests(chrome, args, folder), name)()
                    passed += 1
                except (Failed, ValueError) as e:
                    failed += 1
                    print('FAILED %s: %s' % (name[5:], e))
    except Gone as e:
        print('skipped: %s' % e)
    finally:
        if chrome:
            chrome.close()
    print('report in chromium: %d passed, %d failed' % (passed, failed))
    return failed > 0


if __name__ == '__main__':
    sys.exit(main())
