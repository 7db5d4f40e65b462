#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Servers for the tests of addresses: files of a folder by HTTP ranges, with faults on demand.

A Server serves `files` (path -> bytes or Sparse) and counts what it was asked for and what it sent.  `fault(path, n, handler)`
is asked before each answer (n: how often this path was asked before); it answers itself and returns True, or leaves it alone.
"""
import hashlib
import http.server
import re
import socket
import threading
import urllib.parse


class Sparse:
    """A file of any size of which only some bytes are held: the rest is zeros."""

    def __init__(self, size, parts):
        self.size, self.parts = size, parts

    def __len__(self):
        return self.size

    def __getitem__(self, key):
        out = bytearray(key.stop - key.start)
        for at, data in self.parts:
            lo, hi = max(at, key.start), min(at + len(data), key.stop)
            if lo < hi:
                out[lo - key.start:hi - key.start] = data[lo - at:hi - at]
        return bytes(out)

    def etag(self):
        return hashlib.sha256(b''.join(d for _, d in self.parts) + str(self.size).encode()).hexdigest()


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = 'HTTP/1.1'
    disable_nagle_algorithm = True

    def log_message(self, *args):
        pass

    def send(self, status, body=b'', headers=()):
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        if not any(name.lower() in ('content-length', 'transfer-encoding') for name, _ in headers):
            self.send_header('Content-Length', str(len(body)))
        self.end_headers()
        self.wfile.write(body)
        self.server.owner.count(len(body))

    def cut(self):
        """End the connection as a host does that is gone."""
        self.wfile.flush()
        self.close_connection = True
        try:
            self.connection.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass

    def range_of(self, size):
        """(first, last) of a Range header, None without one."""
        m = re.fullmatch(r'bytes=(\d+)-(\d*)', self.headers.get('Range', ''))
        return (int(m.group(1)), min(int(m.group(2) or size - 1), size - 1)) if m else None

    def give(self, data, etag=None, headers=()):
        """A file or the part of it that was asked for, as servers do that know ranges."""
        etag = etag or '"%s"' % (data.etag() if isinstance(data, Sparse) else hashlib.sha256(data).hexdigest())
        if self.headers.get('If-Match', etag) != etag:
            return self.send(412)
        part = self.range_of(len(data))
        headers = [('ETag', etag), ('Accept-Ranges', 'bytes')] + list(headers)
        if part is None:
            return self.send(200, data[0:len(data)], headers)
        if part[0] >= len(data):
            return self.send(416, b'', headers + [('Content-Range', 'bytes */%d' % len(data))])
        body = data[part[0]:part[1] + 1]
        return self.send(206, body, headers + [('Content-Range', 'bytes %d-%d/%d' % (part[0], part[1], len(data)))])

    def do_GET(self):
        owner = self.server.owner
        if owner.closed:
            return self.cut()  # a connection outlives the server's socket
        url = urllib.parse.urlsplit(self.path)
        path = urllib.parse.unquote(url.path)
        n = owner.asked(path, self)
        if owner.fault and owner.fault(path, n, self):
            return
        if path in owner.files:
            self.give(owner.files[path])
        else:
            self.send(404, b'there is no such file')


class Quiet(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64

    def handle_error(self, request, client_address):
        pass  # clients that go away are what is tested


class Server:
    """On a port of its own, until it is closed; a context manager."""

    def __init__(self, files=None, fault=None, handler=Handler, tls=None):
        self.files, self.fault, self.closed = files or {}, fault, False
        self.lock = threading.Lock()
        self.n_requests = self.n_bytes = 0
        self.paths, self.headers = {}, []
        self.http = Quiet(('127.0.0.1', 0), handler)
        self.http.owner = self
        if tls:
            self.http.socket = tls.wrap_socket(self.http.socket, server_side=True)
        self.url = 'http%s://127.0.0.1:%d' % ('s' if tls else '', self.http.server_address[1])
        self.thread = threading.Thread(target=self.http.serve_forever, kwargs={'poll_interval': 0.02}, daemon=True)
        self.thread.start()

    def asked(self, path, handler):
        with self.lock:
            self.n_requests += 1
            n = self.paths.get(path, 0)
            self.paths[path] = n + 1
            self.headers.append((path, dict(handler.headers)))
        return n

    def count(self, n):
        with self.lock:
            self.n_bytes += n

    def reset(self):
        with self.lock:
            self.n_requests = self.n_bytes = 0
            self.paths, self.headers = {}, []

    def add_folder(self, prefix, folder):
        import os
        for at, _, names in os.walk(folder):
            for name in names:
                rel = os.path.relpath(os.path.join(at, name), folder)
                with open(os.path.join(at, name), 'rb') as f:
                    self.files['%s/%s' % (prefix, rel)] = f.read()
        return self

    def close(self):
        self.closed = True
        self.http.shutdown()
        self.http.server_close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
