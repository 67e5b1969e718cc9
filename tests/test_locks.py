"""Two processes never both hold a run; a dead one never does."""

import json
import multiprocessing
import os
import socket

import pytest

from faults import kill_after, rest, start
from fopng.lab.storage import locks

HOLD = """
import sys, time
from pathlib import Path
from fopng.lab.storage import locks
with locks.hold(Path(sys.argv[1])):
    print("ready", flush=True)
    sys.stdin.read()
"""


def test_the_loser_is_told_who_holds_it_and_gets_it_when_that_one_ends(tmp_path):
    path = tmp_path / "lock"
    process = start(HOLD, str(path))
    with (
        pytest.raises(locks.HeldError, match=rf"Expected {tmp_path} to be free, .* process {process.pid} on"),
        locks.hold(path),
    ):
        pass
    rest(process)
    with locks.hold(path):
        pass
    assert list(tmp_path.iterdir()) == []


def test_a_lock_dies_with_its_process(tmp_path):
    path = tmp_path / "lock"
    kill_after(start(HOLD, str(path)), 0)
    assert path.exists()
    with locks.hold(path):
        pass


def test_one_process_does_not_hold_it_twice(tmp_path):
    path = tmp_path / "lock"
    with locks.hold(path), pytest.raises(locks.HeldError, match=f"process {os.getpid()} on"), locks.hold(path):
        pass
    with locks.hold(path):
        pass


def test_an_error_inside_lets_go(tmp_path):
    path = tmp_path / "lock"
    with pytest.raises(ZeroDivisionError), locks.hold(path):
        raise ZeroDivisionError
    with locks.hold(path):
        pass


CONTEND = """
import sys, time
from pathlib import Path
from fopng.lab.storage import locks
path = Path(sys.argv[1])
print("ready", flush=True)
end = time.monotonic() + 0.5
while time.monotonic() < end:
    try:
        with locks.hold(path):
            inside = path.with_name("inside")
            inside.mkdir()
            inside.rmdir()
    except locks.HeldError:
        pass
"""


def test_processes_that_contend_are_never_inside_together(tmp_path):
    contenders = [start(CONTEND, str(tmp_path / "lock")) for _ in range(3)]
    assert [(rest(contender), contender.returncode) for contender in contenders] == [("", 0)] * 3


def test_a_forked_child_that_outlives_its_parent_does_not_keep_the_lock(tmp_path):
    script = """
import os, sys, time
from pathlib import Path
from fopng.lab.storage import locks
with locks.hold(Path(sys.argv[1])):
    child = os.fork()
    if child == 0:
        time.sleep(0.2)
        print(f"ready\\n{os.getpid()}", flush=True)
        time.sleep(60)
        os._exit(0)
    time.sleep(60)
"""
    process = start(script, str(tmp_path / "lock"))
    child = int(process.stdout.readline())
    process.kill()
    process.wait()
    try:
        assert locks.is_alive(child)
        with locks.hold(tmp_path / "lock"):
            pass
    finally:
        os.kill(child, 9)
        rest(process)


def test_a_dead_process_is_not_alive():
    process = multiprocessing.get_context("spawn").Process()
    assert locks.is_alive(os.getpid())
    process.start()
    process.join()
    assert not locks.is_alive(process.pid)


def test_whether_a_lock_is_held_can_be_seen_without_taking_it(tmp_path):
    path = tmp_path / "lock"
    assert not locks.is_held(path)
    with locks.hold(path):
        assert locks.is_held(path)
    assert not locks.is_held(path)
    process = multiprocessing.get_context("spawn").Process()
    process.start()
    process.join()
    path.write_text(json.dumps({"process": process.pid, "host": socket.gethostname()}))
    assert not locks.is_held(path)
    assert path.exists()


@pytest.mark.parametrize("content", [b"", b"rubbish", b"[" * 100_000, b"{}", b'{"process": 1, "host": "elsewhere"}'])
def test_a_file_that_a_dead_process_left_does_not_keep_a_run(tmp_path, content):
    path = tmp_path / "lock"
    path.write_bytes(content)
    assert locks.is_held(path), "that it is free is only known by trying"
    with locks.hold(path):
        pass
    assert not path.exists()
