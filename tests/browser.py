"""Chromium, driven over its DevTools through a pipe: enough to open a page, use it, measure it and take its picture."""

import base64
import contextlib
import fcntl
import json
import os
import select
import shutil
import subprocess
import sys
import time
from collections import deque
from pathlib import Path

COMMANDS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")

OPTIONS = (
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run", "--mute-audio"),
    *("--disable-dev-shm-usage", "--disable-background-networking", "--disable-component-update", "--disable-sync"),
    "--disable-quic",
)

LAUNCHER = (
    "import os, sys; os.dup2(int(sys.argv[1]), 3); os.dup2(int(sys.argv[2]), 4); os.execv(sys.argv[3], sys.argv[3:])"
)


def find_chromium():
    """Where it is, or None."""
    return next((found for name in COMMANDS if (found := shutil.which(name))), None)


class Browser:
    """One process with one page. What it logged, threw and asked for is in `complaints` and `requests`."""

    def __init__(self, profile, timeout=60):
        self.timeout, self.complaints, self.requests, self.downloads = timeout, [], [], Path(profile) / "downloads"
        self._number, self._buffer, self._events = 0, b"", deque()
        inward, outward = os.pipe(), os.pipe()
        # Chromium reads from 3 and writes to 4; numbers above those cannot be overwritten on the way.
        theirs = [fcntl.fcntl(fd, fcntl.F_DUPFD, 10) for fd in (inward[0], outward[1])]
        command = [find_chromium(), *OPTIONS, "--remote-debugging-pipe", f"--user-data-dir={profile}", "about:blank"]
        redirected = [sys.executable, "-c", LAUNCHER, *map(str, theirs), *command]
        self._process = subprocess.Popen(
            redirected, pass_fds=theirs, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
        )
        for descriptor in (*theirs, inward[0], outward[1]):
            os.close(descriptor)
        self._to, self._from = inward[1], outward[0]
        self._session = None
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.send(f"{domain}.enable")

    def close(self):
        with contextlib.suppress(OSError, TimeoutError, EOFError):
            session, self._session = self._session, None
            self.send("Browser.close")
            self._session = session
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._to)
        os.close(self._from)

    def send(self, method, **parameters):
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._read()
            if answer.get("id") == self._number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]

    def open(self, path):
        self.complaints.clear()
        self.requests.clear()
        self._events.clear()
        self.send("Page.navigate", url=Path(path).as_uri())
        self.wait_for("Page.loadEventFired")

    def wait_for(self, event):
        deadline = time.monotonic() + self.timeout
        while event not in self._events:
            self._read(deadline)
        return True

    def evaluate(self, expression):
        answer = self.send("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise AssertionError(answer["exceptionDetails"])
        return answer["result"].get("value")

    def resize(self, width, height=900):
        self.send(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )

    def click(self, x, y):
        self.move(x, y)
        for kind in ("mousePressed", "mouseReleased"):
            self.send("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def move(self, x, y):
        self.send("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def prefer(self, scheme):
        self.send("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def press(self, key, code):
        for kind in ("keyDown", "keyUp"):
            text = {"text": "\r"} if key == "Enter" and kind == "keyDown" else {}
            self.send("Input.dispatchKeyEvent", type=kind, key=key, windowsVirtualKeyCode=code, **text)

    def allow_downloads(self):
        self.downloads.mkdir(exist_ok=True)
        session, self._session = self._session, None
        self.send("Browser.setDownloadBehavior", behavior="allow", downloadPath=str(self.downloads), eventsEnabled=True)
        self._session = session

    def picture(self, path, *, whole=True):
        shot = self.send("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        Path(path).write_bytes(base64.b64decode(shot["data"]))

    def _read(self, deadline=None):
        """The next message; events are noted on the way."""
        deadline = deadline or time.monotonic() + self.timeout
        while b"\0" not in self._buffer:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self._from], [], [], left)[0]:
                raise TimeoutError("Expected an answer from Chromium, got none.")
            some = os.read(self._from, 1 << 20)
            if not some:
                raise EOFError("Chromium has gone.")
            self._buffer += some
        text, _, self._buffer = self._buffer.partition(b"\0")
        message = json.loads(text)
        self._note(message.get("method"), message.get("params", {}))
        return message

    def _note(self, event, details):
        if event:
            self._events.append(event)
        if event == "Runtime.consoleAPICalled" and details["type"] in ("error", "warning", "assert"):
            self.complaints.append(details["args"])
        elif event == "Runtime.exceptionThrown":
            self.complaints.append(details["exceptionDetails"])
        elif event == "Log.entryAdded" and details["entry"]["level"] in ("error", "warning"):
            self.complaints.append(details["entry"]["text"])
        elif event == "Network.requestWillBeSent":
            self.requests.append(details["request"]["url"])
