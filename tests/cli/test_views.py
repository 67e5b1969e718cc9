"""The view of work on a cluster, and what the command line says about clusters that it cannot use."""

import io
import sys

import pytest
from rich.console import Console

from fopng.cli import main
from fopng.cli.views import ClusterView
from fopng.lab.schedule.view import Tally

TALLY = Tally(done=2, running=3, waiting=4, failed=1, runs=100, runs_done=20, progress=25.0)


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


def test_the_words():
    clock = Clock()
    view = ClusterView(Console(file=io.StringIO()), clock=clock)
    clock.now = 60.0
    assert view.words(TALLY) == (
        "groups: 2 done, 3 running, 4 waiting, 1 failed; runs: 20/100, 20.0 a minute, 3:00 left"
    )


def test_lines_in_a_log():
    clock, file = Clock(), io.StringIO()
    view = ClusterView(Console(file=file, width=200), clock=clock)
    for clock.now in (1.0, 9.0, 11.0, 12.0):
        view.tally(TALLY)
    assert file.getvalue().count("groups: ") == 1
    view.tally(Tally(done=9, running=0, waiting=0, failed=1, runs=100, runs_done=99, progress=100.0))
    assert "9 done, 0 running, 0 waiting, 1 failed; runs: 99/100" in file.getvalue().splitlines()[-1]


def test_a_bar_on_a_terminal():
    file = io.StringIO()
    view = ClusterView(Console(file=file, width=200, force_terminal=True))
    with view.over(100):
        view.tally(TALLY)
        view._bars.refresh()
    assert "3 running" in file.getvalue()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--address", "127.0.0.1:1"), "Expected --engine ray with --address"),
        (("--engine", "ray", "--jobs", "2"), "Expected no --jobs with --engine ray"),
        (("--engine", "ray", "--device", "mps"), "Expected --device auto, cpu or cuda with --engine ray"),
    ],
)
def test_usage(arguments, words, shared_cache, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["fopng", "run", "split-digits", "sgd", *arguments])
    with pytest.raises(SystemExit) as caught:
        main()
    assert caught.value.code == 2
    assert words in capsys.readouterr().err


def test_without_ray(shared_cache, tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "ray", None)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["fopng", "run", "split-digits", "sgd", "--engine", "ray"])
    with pytest.raises(SystemExit) as caught:
        main()
    assert caught.value.code == 1
    assert "pip install 'fopng[ray]'" in capsys.readouterr().err
