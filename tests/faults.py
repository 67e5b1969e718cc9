"""Faults for real: processes killed at random moments, files of limited size, bytes lost and bits flipped."""

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator


def start(script: str, *arguments: str) -> subprocess.Popen[str]:
    """A Python process that runs `script` and tells it is ready by a first line of output."""
    environment = {**os.environ, "PYTHONPATH": ":".join(sys.path), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", script, *arguments]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)
    assert process.stdout is not None
    assert process.stdout.readline().strip() == "ready"
    return process


def rest(process: subprocess.Popen[str]) -> str:
    """What the process still has to say, once its input is closed and it has ended.

    Not `communicate`: that reads past what `readline` has taken in beyond the first line.
    """
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.close()
    with process.stdout:
        output = process.stdout.read()
    process.wait()
    return output


def kill_after(process: subprocess.Popen[str], seconds: float) -> None:
    time.sleep(seconds)
    process.send_signal(signal.SIGKILL)
    rest(process)


def cut_short(content: bytes) -> Iterator[bytes]:
    """The content at every length less than its own."""
    return (content[:length] for length in range(len(content)))


def flipped(content: bytes, count: int, seed: int = 0) -> Iterator[bytes]:
    """The content with one bit changed, at `count` random places."""
    generator = random.Random(seed)
    for _ in range(count):
        damaged = bytearray(content)
        damaged[generator.randrange(len(content))] ^= 1 << generator.randrange(8)
        yield bytes(damaged)


# A process whose files may not grow beyond a size gets the same kind of error from a write as on a full disk.
LIMIT_FILE_SIZE = """
import resource, signal
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
def limit(size):
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
"""
