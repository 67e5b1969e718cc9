"""For every test: one thread, the same numbers every time, and no deadline, which on a busy machine fails what is right."""

import os
import sys

import hypothesis
import pytest
import torch

from fopng.cli import main
from isolation import session_cache, shared_cache  # noqa: F401

if not torch.cuda.is_available():
    # before anything imports Triton: its kernels are then run by its interpreter
    os.environ.setdefault("TRITON_INTERPRET", "1")
hypothesis.settings.register_profile("fopng", deadline=None, derandomize=True, max_examples=25)
hypothesis.settings.load_profile("fopng")
torch.set_num_threads(1)


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
