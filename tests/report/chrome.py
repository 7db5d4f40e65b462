# SPDX-License-Identifier: Apache-2.0
"""Chromium without a window, told what to do by the DevTools protocol over two pipes: no port, no package."""
import base64
import json
import os
import select
import shutil
import signal
import subprocess
import tempfile
import time

# A machine may be busy with much else: what takes longer is no failure of the page, and is told as such.
PATIENCE = 120
NAMES = ('chromium', 'chromium-browser', 'google-chrome')


class Gone(Exception):
    """There is no browser, or it does not answer."""


class Chrome:
    """One page; errors: what its console has complained of; requests: addresses that it asked for, and its policy did not refuse."""

    def __init__(self):
        program = next((p for p in map(shutil.which, NAMES) if p), None)
        bash = shutil.which('bash')
        if not program or not bash:
            raise Gone('chromium is not installed' if bash else 'bash is not installed')
        self.folder = tempfile.mkdtemp()
        self.number, self.rest, self.errors, self.requests = 0, b'', [], {}
        theirs, self.write = os.pipe()
        self.read, answers = os.pipe()
        words = [program, '--headless', '--no-sandbox', '--disable-gpu', '--disable-dev-shm-usage', '--no-first-run', '--hide-scrollbars',
                 '--disable-background-networking', '--disable-extensions', '--remote-debugging-pipe', '--user-data-dir=' + self.folder, 'about:blank']
        # HOME may be one that cannot be written to
        env = dict(os.environ, HOME=self.folder, XDG_CONFIG_HOME=self.folder, XDG_CACHE_HOME=self.folder)
        self.process = subprocess.Popen([bash, '-c', 'exec 3<&"$0" 4>&"$1"; shift; exec "$@"', str(theirs), str(answers)] + words,
                                        pass_fds=(theirs, answers), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                        stderr=subprocess.DEVNULL, env=env, start_new_session=True)
        os.close(theirs)
        os.close(answers)
        self.session, self.visits = None, 0
        try:
            target = self.ask('Target.createTarget', url='about:blank')['targetId']
            self.session = self.ask('Target.attachToTarget', targetId=target, flatten=True)['sessionId']
            for domain in 'Runtime', 'Log', 'Page', 'Network':
                self.ask(domain + '.enable')
            self.dark(False)
        except Gone:
            self.close()
            raise

    def close(self):
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()
        os.close(self.write)
        os.close(self.read)
        shutil.rmtree(self.folder, ignore_errors=True)

    def message(self, until):
        while b'\0' not in self.rest:
            left = until - time.monotonic()
            if left <= 0 or not select.select([self.read], [], [], left)[0]:
                raise Gone('chromium did not answer within %d s' % PATIENCE)
            more = os.read(self.read, 1 << 20)
            if not more:
                raise Gone('chromium ended')
            self.rest += more
        text, self.rest = self.rest.split(b'\0', 1)
        return json.loads(text)

    def ask(self, method, **params):
        self.number += 1
        call = {'id': self.number, 'method': method, 'params': params}
        if self.session:
            call['sessionId'] = self.session
        data, until = json.dumps(call).encode() + b'\0', time.monotonic() + PATIENCE
        try:
            while data:
                data = data[os.write(self.write, data):]
        except OSError as e:
            raise Gone('chromium ended') from e
        while True:
            m = self.message(until)
            if m.get('id') == self.number:
                if 'error' in m:
                    raise Gone('%s: %s' % (method, m['error'].get('message')))
                return m['result']
            self.event(m)

    def event(self, m):
        kind, p = m.get('method'), m.get('params', {})
        if kind == 'Inspector.targetCrashed':
            raise Gone('the page crashed')
        if kind == 'Runtime.exceptionThrown':
            self.errors.append(json.dumps(p['exceptionDetails'])[:400])
        elif kind == 'Runtime.consoleAPICalled' and p['type'] in ('error', 'assert'):
            self.errors.append(json.dumps(p['args'])[:400])
        elif kind == 'Log.entryAdded' and p['entry']['level'] == 'error':
            self.errors.append(p['entry']['text'][:400])
        elif kind == 'Network.requestWillBeSent':
            self.requests[p['requestId']] = p['request']['url']
        elif kind == 'Network.loadingFailed' and p.get('blockedReason') == 'csp':
            self.requests.pop(p['requestId'], None)

    def run(self, program):
        """The value of a piece of JavaScript."""
        got = self.ask('Runtime.evaluate', expression=program, returnByValue=True, awaitPromise=True)
        if 'exceptionDetails' in got:
            raise ValueError('%s: %s' % (program, json.dumps(got['exceptionDetails'])[:400]))
        return got['result'].get('value')

    def until(self, program):
        """Wait for a condition; while a page is loading, it may have no elements to ask for."""
        end = time.monotonic() + PATIENCE
        while not self.run('(() => { try { return %s; } catch (e) { return false; } })()' % program):
            if time.monotonic() > end:
                raise Gone('%s did not become true within %d s' % (program, PATIENCE))
            time.sleep(0.05)

    def frame(self):
        """Two frames later what was asked for is drawn."""
        self.run('new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(done, 0))))')

    def open(self, path, width=1200, height=900):
        self.ask('Emulation.setDeviceMetricsOverride', width=width, height=height, deviceScaleFactor=1, mobile=False)
        self.errors.clear()
        self.requests.clear()
        self.visits += 1
        self.ask('Page.navigate', url='file://%s?%d' % (os.path.abspath(path), self.visits))
        self.until('document.readyState === "complete" && location.search === "?%d"' % self.visits)
        self.frame()

    def dark(self, on):
        self.ask('Emulation.setEmulatedMedia', features=[{'name': 'prefers-color-scheme', 'value': 'dark' if on else 'light'}])
        self.frame()

    def key(self, key, code=0, text=''):
        for kind in 'keyDown', 'keyUp':
            more = {'text': text} if text and kind == 'keyDown' else {}
            self.ask('Input.dispatchKeyEvent', type=kind, key=key, windowsVirtualKeyCode=code, **more)

    def picture(self, path, clip=None):
        """A screenshot: of (x, y, width, height), or of what is seen."""
        more = {}
        if clip:
            more = {'clip': dict(zip(('x', 'y', 'width', 'height'), clip), scale=1), 'captureBeyondViewport': True}
        data = base64.b64decode(self.ask('Page.captureScreenshot', format='png', **more)['data'])
        with open(path, 'wb') as f:
            f.write(data)
        return len(data)
