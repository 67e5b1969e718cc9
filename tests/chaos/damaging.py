"""Every file that the project reads, damaged: it is told, or repaired; numbers never change."""

import contextlib
import os
import random
import shutil
import signal
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

import tiny
from chaos.accidents import SignalAt
from chaos.killing import TINY, undisturbed
from chaos.laboratory import Job, begin, check_left, end, numbers_in, said, scratch, told
from chaos.tally import demand, here
from fopng.lab.data.catalog import Layout
from fopng.lab.data.errors import DataError
from fopng.lab.data.formats import Idx
from fopng.lab.data.library import decode, load_arrays
from fopng.lab.runs.result import DamagedFileError
from fopng.lab.runs.store import load_results

ALONE = Job(("run", "split-digits", "fopng", "--engine", "single", *TINY), often=True)
GROUP = Job(("run", "split-digits", "ewc", "--engine", "replicas", "--seeds", "2", *TINY), often=True)
# one by one: a run that is done again alone has the same bits as when it was
FINISHED = Job(("compare", "split-digits", "sgd", "er", "--engine", "single", "--seeds", "2", *TINY))

RUBBISH = (
    b"",
    b"\0" * 4096,
    b"null",
    b"[]",
    b"{}",
    b"[[[[",
    b"\xff\xfe\x00",
    b'{"format": 99}',
    b"[" * 100_000,
    b"9" * 5000,
)


@cache
def _kept() -> Path:
    """A folder of what the cases begin with, for as long as this process lives."""
    return Path(_folder.name)


_folder = tempfile.TemporaryDirectory(prefix="chaos-sound-")


@cache
def sound(job: Job) -> Path:
    """The folder that a finished job leaves, exported results beside its runs."""
    folder = _kept() / f"finished-{abs(hash(job))}"
    folder.mkdir()
    demand(end(begin(job, folder)).code == 0, "could not begin")
    with here(folder):
        demand(said("export", "runs", "results")[0] == 0, "could not export")
    return folder


@cache
def begun(job: Job) -> Path:
    """The folder that a job leaves which was killed in the middle."""
    folder = _kept() / f"begun-{abs(hash(job))}"
    folder.mkdir()
    ended = end(begin(job, folder, SignalAt(signal.SIGKILL, undisturbed(job).events * 2 // 3)))
    demand(ended.code == -signal.SIGKILL, "was not killed")
    return folder


def spoil(path: Path, chance: random.Random) -> None:
    """Damage a file."""
    content = path.read_bytes()
    path.write_bytes(damaged(content, chance))


def damaged(content: bytes, chance: random.Random) -> bytes:
    """The content cut, flipped, overwritten, lengthened, or something else."""
    place = chance.randrange(len(content) or 1)
    kind = chance.randrange(6)
    if kind == 0:
        return content[:place]
    if kind in (1, 2):
        flipped = bytearray(content or b"\0")
        for _ in range(chance.choice((1, 1, 1, 8, 64))):
            flipped[chance.randrange(len(flipped))] ^= 1 << chance.randrange(8)
        return bytes(flipped)
    if kind == 3:
        return content[:place] + chance.randbytes(chance.choice((1, 16, 512))) + content[place:]
    if kind == 4:
        return content[:place] + b"\0" * min(512, len(content) - place) + content[place + 512 :]
    return chance.choice(RUBBISH)


def read(name: str) -> Callable[[random.Random, int], None]:
    """A finished run's file: what is read of all is the same, or the file is told."""

    def case(chance: random.Random, place: int) -> None:
        whole = {result.config.key: result for result in load_results([sound(FINISHED)])}
        with scratch() as folder:
            shutil.copytree(sound(FINISHED), folder, dirs_exist_ok=True)
            path = chance.choice(sorted(folder.rglob(name)))
            spoil(path, chance)
            told_of: list[DamagedFileError] = []
            found = load_results([folder / path.relative_to(folder).parts[0]], damaged=told_of.append)
            demand(all(_same(each, whole[each.config.key]) for each in found), "other numbers are read")
            demand(len(found) == len(whole) or path.name in str(told_of[0]), "a result is gone without a word")
            demand(all("Expected" in str(each) for each in told_of), f"not told what to do: {told_of}")
            with here(folder):
                for words in (("show", "--json"), ("watch", "--json"), ("report", "runs", "-o", "r.csv"))[
                    : 1 + place % 3
                ]:
                    code, _, err = said(*words)
                    demand(code in (0, 1, 2) and "may be a bug" not in err, f"{words}: {err}")

    return case


def _same(one: Any, other: Any) -> bool:
    return (one.config, one.accuracy, one.measured, one.status) == (
        other.config,
        other.accuracy,
        other.measured,
        other.status,
    )


def goes_on(job: Job, name: str) -> Callable[[random.Random, int], None]:
    """A file of a run that was killed: the same command goes on, or does it again, to the same numbers."""

    def case(chance: random.Random, place: int) -> None:
        expected = undisturbed(job)
        with scratch() as folder:
            shutil.copytree(begun(job), folder, dirs_exist_ok=True)
            spoil(chance.choice(sorted(path for path in folder.rglob(name) if path.is_file())), chance)
            if place % 4 == 0:
                with here(folder):
                    demand("may be a bug" not in said("watch", "--json")[2] + said("show", "--json")[2], "not read")
            ended = end(begin(job, folder))
            demand(ended.code == 0, f"{ended.code}: {ended.err[-400:]}")
            demand(told(ended.out) == expected.said, "other numbers are told")
            demand(numbers_in(folder) == expected.numbers, "other numbers are kept")
            if name != "log.jsonl":
                check_left(folder, expected)

    return case


def done_again(chance: random.Random, place: int) -> None:
    """A result that cannot be read is made again."""
    expected = undisturbed(FINISHED)
    with scratch() as folder:
        shutil.copytree(sound(FINISHED) / "runs", folder / "runs")
        spoil(chance.choice(sorted(folder.rglob("result.json"))), chance)
        ended = end(begin(FINISHED, folder))
        demand(ended.code == 0, f"{ended.code}: {ended.err[-400:]}")
        demand(numbers_in(folder) == expected.numbers and told(ended.out) == expected.said, "other numbers")


FORMATS = {
    "plain": lambda made: (tiny.idx_files(made), Layout(Idx(), (".",))),
    "zipped": lambda made: (tiny.zipped(tiny.idx_files(made)), Layout(Idx(), (".",))),
    "binary": lambda made: (tiny.binary_files(made), Layout(tiny.BINARY, (".",))),
    "pickled": lambda made: (tiny.pickled_files(made), Layout(tiny.PYTHON, (".",))),
    "archive": lambda made: (
        {"all.tar.gz": tiny.tar_bytes(tiny.pickled_files(made), "in/")},
        Layout(tiny.PYTHON, ("in",), archive="all.tar.gz"),
    ),
}


def dataset(chance: random.Random, place: int) -> None:
    """Files of a dataset: the known arrays, or a refusal."""
    made = tiny.arrays(tiny.GREY if (grey := place % 5 < 2) else tiny.COLOURED)
    name = chance.choice(["plain", "zipped"] if grey else ["binary", "pickled", "archive"])
    files, layout = FORMATS[name](made)
    known = tiny.dataset(made, (layout,))
    with scratch() as folder, _cache(folder / "cache"):
        tiny.write(folder / "data", files)
        spoil(folder / "data" / chance.choice(sorted(files)), chance)
        with contextlib.suppress(DataError):
            found = decode(known, [folder / "data"])
            demand(all(np.array_equal(found[part], made[part]) for part in made), "other data is read")


def cached(chance: random.Random, place: int) -> None:
    """Decoded arrays in the cache: they are decoded again."""
    made = tiny.arrays()
    known = tiny.dataset(made)
    with scratch() as folder, _cache(folder / "cache"):
        tiny.write(folder / "data", tiny.idx_files(made))
        load_arrays(known, folder / "data")
        spoil(chance.choice(sorted((folder / "cache" / "arrays" / "tiny").iterdir())), chance)
        found = load_arrays(known, folder / "data")
        demand(all(np.array_equal(found[part], made[part]) for part in made), "other data is read")
        shutil.rmtree(folder / "data")
        demand(load_arrays(known, folder / "data") is not None, "what was repaired is not kept")


@contextlib.contextmanager
def _cache(folder: Path) -> Any:
    before = os.environ["FOPNG_CACHE"]
    os.environ["FOPNG_CACHE"] = str(folder)
    try:
        yield
    finally:
        os.environ["FOPNG_CACHE"] = before


SETTINGS = b"""epochs = 1
[benchmark]
tasks = 2
[fopng]
lr = 1e-3
damping = 5e-4
"""

SWEEP = b"""benchmarks = ["split-digits"]
protocol = "matched"
[benchmark]
tasks = 2
[validation]
seeds = [100, 101]
[test]
seeds = [0]
[methods.sgd]
lr = [1e-2, 1e-1]
[[methods.ewc]]
lr = [1e-2]
strength = [1.0, 10.0]
"""


def configuration(chance: random.Random, place: int) -> None:
    """A file of settings, or of a sweep: taken as it is, or refused in a sentence."""
    words = ("run", "split-digits", "fopng", "--settings", "f.toml") if place % 2 else ("sweep", "f.toml")
    with scratch() as folder, here(folder):
        Path("f.toml").write_bytes(damaged(SETTINGS if place % 2 else SWEEP, chance))
        code, _, err = said(*words, "--dry-run", "--no-estimate")
        demand(code in (0, 2), f"{code}: {err}")
        demand(code == 0 or "Expected" in err, err)


KINDS = {
    "`result.json`, read": read("result.json"),
    "`result.json`, the run done again": done_again,
    "`config.json` of a finished run": read("config.json"),
    "`log.jsonl` of a finished run": read("log.jsonl"),
    "exported `*.results.json`": read("*.results.json"),
    "`checkpoint.*` of a run": goes_on(ALONE, "checkpoint.*"),
    "`checkpoint.*` of a group": goes_on(GROUP, "checkpoint.*"),
    "`group.json`": goes_on(GROUP, "group.json"),
    "`config.json` of an unfinished run": goes_on(ALONE, "config.json"),
    "`log.jsonl` of an unfinished run": goes_on(ALONE, "log.jsonl"),
    "`lock`": goes_on(ALONE, "lock"),
    "a dataset's files and archives": dataset,
    "decoded arrays in the cache": cached,
    "a TOML file of settings or of a sweep": configuration,
}
"""Each kind and its case."""
