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
        delay: seconds between blocks.
        stall: seconds to stand still half way.
        endless: whether zeros follow each file for ever.
        status: answered to every request, instead of a file.
        requests: the name of every request so far.
    """

    def __init__(self, files):
        self.files = dict(files)
        self.cuts = 0
        self.delay = self.stall = 0.0
        self.endless = False
        self.status = None
        self.requests = []


class _Handler(BaseHTTPRequestHandler):
    def log_message(self, *_):
        pass

    def do_GET(self):
        site, name = self.server.site, self.path.lstrip("/")
        site.requests.append(name)
        if site.status or name not in site.files:
            self.send_error(site.status or 404)
            return
        data = site.files[name]
        self.send_response(200)
        if not site.endless:
            self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        with suppress(BrokenPipeError, ConnectionResetError):
            self._body(site, data, (len(data) + 1) // 2)

    def _body(self, site, data, half):
        self._send(data[:half], site.delay)
        if site.cuts:
            site.cuts -= 1
            return
        time.sleep(site.stall)
        self._send(data[half:], site.delay)
        while site.endless:
            self._send(b"\0" * (1 << 20), site.delay)

    def _send(self, data, delay):
        block = max(1, len(data) // 8)
        for start in range(0, len(data), block):
            time.sleep(delay)
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
    server.server_close()
    return f"http://127.0.0.1:{server.server_port}"
