"""For every test: one thread, the same numbers every time, and no deadline, which on a busy machine fails what is right."""

import json
import os
import sys
from importlib.util import find_spec
from pathlib import Path

import hypothesis
import pytest
import torch

from fopng.cli import main
from isolation import empty_machine, session_cache, shared_cache  # noqa: F401

if not torch.cuda.is_available():
    # before anything imports Triton: its kernels are then run by its interpreter
    os.environ.setdefault("TRITON_INTERPRET", "1")
hypothesis.settings.register_profile("fopng", deadline=None, derandomize=True, max_examples=25)
hypothesis.settings.load_profile("fopng")
torch.set_num_threads(1)


def pytest_configure(config):
    """Write Avalanche's settings before several processes import it: one would read the file that another has half written."""
    settings = Path.home() / ".avalanche" / "config.json"
    if not hasattr(config, "workerinput") and find_spec("avalanche") and not settings.exists():
        settings.parent.mkdir(exist_ok=True)
        settings.write_text(json.dumps({"dataset_location": str(settings.parent / "data")}))


@pytest.fixture(autouse=True)
def _same_numbers_every_time() -> None:
    torch.manual_seed(0)


@pytest.fixture
def command_line(monkeypatch, capsys):
    """Run the command line here; returns exit code, stdout and stderr."""

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["fopng", *arguments])
        with pytest.raises(SystemExit) as caught:
            main()
        printed = capsys.readouterr()
        assert "Traceback" not in printed.err
        return caught.value.code, printed.out, printed.err

    return run
