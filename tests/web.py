"""A real HTTP server on this machine that can be slow, cut off, or wrong."""

import threading
import time
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Site:
    """What is served, and how badly.

    Attributes:
        files: contents by name.
        cuts: how many more answers stop half way.
        ranges: whether parts of files are served.
        delay: seconds between blocks.
        stall: seconds to stand still half way.
        requests: the name and the range of every request so far.
    """

    def __init__(self, files):
        self.files = dict(files)
        self.cuts = 0
        self.ranges = True
        self.delay = 0.0
        self.stall = 0.0
        self.endless = False
        self.wrong_range = False
        self.status = None
        self.requests = []


class _Handler(BaseHTTPRequestHandler):
    def log_message(self, *_):
        pass

    @property
    def site(self):
        return self.server.site

    def do_GET(self):
        name = self.path.lstrip("/")
        asked = self.headers.get("Range")
        self.site.requests.append((name, asked))
        if self.site.status or name not in self.site.files:
            self.send_error(self.site.status or 404)
            return
        data = self.site.files[name]
        start = int(asked.removeprefix("bytes=").rstrip("-")) if asked and self.site.ranges else 0
        if start >= len(data) > 0:
            self.send_error(416)
            return
        self._head(data, start)
        with suppress(BrokenPipeError, ConnectionResetError):
            self._body(data[start:])

    def _head(self, data, start):
        self.send_response(206 if start else 200)
        if start:
            first = start + 1 if self.site.wrong_range else start
            self.send_header("Content-Range", f"bytes {first}-{len(data) - 1}/{len(data)}")
        if not self.site.endless:
            self.send_header("Content-Length", str(len(data) - start))
        self.end_headers()

    def _body(self, data):
        half = (len(data) + 1) // 2
        self._send(data[:half])
        if self.site.cuts:
            self.site.cuts -= 1
            return
        if self.site.stall:
            time.sleep(self.site.stall)
        self._send(data[half:])
        while self.site.endless:
            self._send(b"\0" * (1 << 20))

    def _send(self, data):
        block = max(1, len(data) // 8)
        for start in range(0, len(data), block):
            time.sleep(self.site.delay)
            self.wfile.write(data[start : start + block])


@contextmanager
def serve(files):
    """The site and its address."""
    site = Site(files)
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    server.site = site
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield site, f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def unused_address():
    """An address at which nothing listens."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    port = server.server_port
    server.server_close()
    return f"http://127.0.0.1:{port}"
