"""Commands in processes of their own, each forked from this one, which has everything imported: a hundredth of a second each."""

import contextlib
import fcntl
import io
import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

import fopng.cli.work
from chaos.accidents import Accident
from chaos.tally import demand, here
from fopng.cli import main
from fopng.lab.schedule.runner import Runner
from processes import is_running

COSTS = ("seconds", "seconds_by_phase", "peak_memory_bytes", "environment")
"""Members of a result that may differ from time to time."""

PATIENCE = 120.0
"""Seconds after which a command counts as stuck."""

KEPT = ("config.json", "result.json", "log.jsonl")
"""What a finished run leaves in its folder."""


WARMING = (
    ("compare", "split-digits", "sgd", "fopng", "--seeds", "2", "--epochs", "1", "--set", "tasks=2"),
    ("run", "split-digits", "sgd", "--dry-run"),
    ("show", "--out", "runs"),
    ("export", "runs", "results"),
)


@dataclass(frozen=True)
class Job:
    """A command that leaves runs behind.

    Args:
        words: what is typed; its folder of runs is `runs`.
        often: whether its checkpoint is saved all the time.
        cold: whether no dataset is in the cache yet.
        again: whether it forgets earlier results.
    """

    words: tuple[str, ...]
    often: bool = False
    cold: bool = False
    again: bool = False


@dataclass(frozen=True)
class Running:
    """A process and the pipes that hold what it says."""

    process: int
    out: int
    err: int


@dataclass(frozen=True)
class Ended:
    """How a process ended: its code, negative for a signal, and what it said."""

    code: int
    out: str
    err: str


@dataclass(frozen=True)
class Undisturbed:
    """What a job leaves and says when nothing happens to it."""

    files: frozenset[str]
    numbers: dict[str, Any]
    said: Any
    seconds: float
    events: int


def begin(job: Job, folder: Path, accident: Accident | None = None) -> Running:
    """Begin a job in a folder, as the leader of a session of its own."""
    (out, own_out), (err, own_err) = _pipe(), _pipe()
    process = os.fork()
    if process == 0:
        os.dup2(own_out, 1)
        os.dup2(own_err, 2)
        _be(job, folder, accident or Accident())
    os.close(own_out)
    os.close(own_err)
    return Running(process, out, err)


def _pipe() -> tuple[int, int]:
    """A pipe that takes a megabyte before anybody reads."""
    inward, outward = os.pipe()
    fcntl.fcntl(outward, fcntl.F_SETPIPE_SZ, 1 << 20)
    return inward, outward


def _be(job: Job, folder: Path, accident: Accident) -> None:
    """In the new process: the command, and nothing after it."""
    code = 70
    try:
        os.setsid()
        os.chdir(folder)
        sys.stdout, sys.stderr = os.fdopen(1, "w", closefd=False), os.fdopen(2, "w", closefd=False)
        if job.cold:
            os.environ["FOPNG_CACHE"] = str(folder / "cache")
        if job.often:
            fopng.cli.work.Runner = partial(Runner, save_seconds=0.0)  # type: ignore[misc,assignment]
        sys.argv = ["fopng", *job.words]
        accident.arm(str(folder.resolve()))
        main()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    finally:
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def end(running: Running, kill_after: float | None = None, number: int = signal.SIGKILL) -> Ended:
    """Wait for a process; it gets a signal after some seconds. Fails when it is stuck, or leaves processes behind."""
    code = _wait(running.process, kill_after, number)
    with open(running.out, "rb") as out, open(running.err, "rb") as err:
        demand(_alone(running.process), f"processes outlive the command: {list(session(running.process))}")
        found = Ended(code, out.read().decode(errors="replace"), err.read().decode(errors="replace"))
    demand("Traceback" not in found.err and "may be a bug" not in found.err, found.err[-600:])
    return found


def _wait(process: int, kill_after: float | None, number: int) -> int:
    began, due = time.monotonic(), kill_after
    while True:
        ended, status = os.waitpid(process, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        passed = time.monotonic() - began
        if due is not None and passed >= due:
            os.kill(process, number)
            due = None
        if passed > PATIENCE:
            os.killpg(process, signal.SIGKILL)
            os.waitpid(process, 0)
            demand(False, "a command was stuck")
        time.sleep(0.002)


def session(leader: int) -> Iterator[int]:
    """The processes of a session that still run."""
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            if int(path.read_text().rpartition(")")[2].split()[3]) == leader and is_running(int(path.parent.name)):
                yield int(path.parent.name)


def _alone(leader: int) -> bool:
    limit = time.monotonic() + 30
    while any(session(leader)):
        if time.monotonic() > limit:
            for process in session(leader):
                os.kill(process, signal.SIGKILL)
            return False
        time.sleep(0.02)
    return True


def finish(job: Job, folder: Path, expected: Undisturbed) -> None:
    """Do the rest of a job undisturbed, and hold what it leaves and says against what it should."""
    before = whole_results(folder)
    ended = end(begin(job, folder))
    demand(ended.code == 0, f"going on ended with {ended.code}: {ended.err[-400:]}")
    demand(told(ended.out) == expected.said, f"other numbers are told: {ended.out[-300:]}")
    check_left(folder, expected)
    if not job.again:
        after = whole_results(folder)
        demand(all(after.get(path) == text for path, text in before.items()), "a finished run was done again")


def check_left(folder: Path, expected: Undisturbed) -> None:
    """Nothing is missing, doubled or left over."""
    files = files_of(folder)
    demand(files == expected.files, f"files differ: {sorted(files ^ expected.files)}")
    demand(numbers_in(folder) == expected.numbers, "numbers differ")
    for log in folder.rglob("log.jsonl"):
        lines = [json.loads(line) for line in log.read_text().splitlines()]
        demand(lines[-1]["event"] == "run ended", f"{log} does not end")


def files_of(folder: Path) -> frozenset[str]:
    """Every file and empty folder, as paths."""
    found = (path for path in folder.rglob("*") if path.is_file() or not any(path.iterdir()))
    return frozenset(path.relative_to(folder).as_posix() for path in found)


def whole_results(folder: Path) -> dict[str, bytes]:
    """The results that are there."""
    return {str(path): path.read_bytes() for path in folder.rglob("result.json")}


def numbers_in(folder: Path) -> dict[str, Any]:
    """Every result of a folder by the key of its run, without what it cost."""
    found = [json.loads(path.read_bytes()) for path in sorted(folder.rglob("result.json"))]
    return {result["key"]: _lasting(result) for result in found}


def told(text: str) -> Any:
    """What a command printed with --json, without costs."""
    return [_lasting(each) for each in json.loads(text)] if text.startswith("[") else text


ROUNDED = ("lost", "really_lost", "really_lost_worst")
"""Sums of logarithms, whose last digits depend on how many runs stood side by side."""


def _lasting(result: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in result.items() if name not in (*COSTS, *ROUNDED, "sha256")}


@contextlib.contextmanager
def scratch() -> Iterator[Path]:
    """A folder to work in."""
    with tempfile.TemporaryDirectory(prefix="chaos-") as base:
        folder = Path(base) / "work"
        folder.mkdir()
        yield folder


class References:
    """What each job leaves undisturbed, found out once."""

    def __init__(self) -> None:
        self._known: dict[Job, Undisturbed] = {}

    def __call__(self, job: Job, count: Callable[[Job, Path], int]) -> Undisturbed:
        """What a job leaves, and how many file-system events it makes, as `count` tells."""
        if job not in self._known:
            plain = replace(job, again=False)
            with scratch() as folder:
                began = time.monotonic()
                ended = end(begin(plain, folder))
                seconds = time.monotonic() - began
                demand(ended.code == 0, ended.err)
                left = Undisturbed(files_of(folder), numbers_in(folder), told(ended.out), seconds, 0)
            with scratch() as folder:
                self._known[job] = replace(left, events=count(plain, folder))
        return self._known[job]


def warm(cache: Path) -> None:
    """Import what commands import, by doing some here; and fill the cache."""
    os.environ |= {"FOPNG_CACHE": str(cache), "OMP_NUM_THREADS": "1", "COLUMNS": "80"}
    for name in ("FOPNG_DEBUG", "FOPNG_DATA"):
        os.environ.pop(name, None)
    torch.set_num_threads(1)
    with scratch() as folder, here(folder):
        for words in WARMING:
            code, _, err = said(*words)
            demand(code == 0, err)


def said(*words: str) -> tuple[int, str, str]:
    """A command in this process: its exit code, and what it wrote."""
    before = sys.argv
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()) as err:
        sys.argv = ["fopng", *words]
        try:
            main()
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else int(end.code is not None)
        finally:
            sys.argv = before
    return code, out.getvalue(), err.getvalue()
