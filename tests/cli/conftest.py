import json
import shlex
from typing import NamedTuple

import pytest

from isolation import _one_thread, empty_machine, session_cache, shared_cache  # noqa: F401


class Said(NamedTuple):
    out: str
    err: str

    @property
    def json(self):
        return json.loads(self.out)


@pytest.fixture
def fopng(shared_cache, tmp_path, monkeypatch, command_line):  # noqa: F811
    """Run a command line in an empty folder; returns what it said, after a look at its exit code."""
    for name in ("FOPNG_DEBUG", "FOPNG_DATA"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.chdir(tmp_path)

    def run(line, *more, code=0):
        found, *said = command_line(*shlex.split(line), *more)
        assert found == code, said
        return Said(*said)

    return run


@pytest.fixture
def on_an_empty_machine(empty_machine, fopng, monkeypatch, shared_cache):  # noqa: F811
    """The same where no dataset was ever fetched."""
    monkeypatch.setenv("FOPNG_CACHE", str(empty_machine / "cache"))
    monkeypatch.chdir(empty_machine / "work")
    return fopng
