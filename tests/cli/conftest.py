"""The command line, run in this process."""

import sys

import pytest

from fopng.cli import main
from isolation import _one_thread, empty_machine, session_cache, shared_cache  # noqa: F401


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
