"""Observers see what happens, say it well, and change nothing."""

import dataclasses
import io
import json
import random
import re
import subprocess
import sys

import numpy as np
import pytest
import torch
from rich.console import Console

from faults import LIMIT_FILE_SIZE, cut_short, rest, start
from fopng.lab.engine import observers
from fopng.lab.engine.observers import (
    Audience,
    EpochStarted,
    Evaluated,
    JsonLog,
    RunEnded,
    RunStarted,
    StepDone,
    TaskEnded,
    TaskStarted,
)

STARTED = RunStarted("split-mnist [b]fopng[/b] seed 0", 2, 20, 0, {"seed": 0, "settings": {"lr": 1e-3}})


def events(started=STARTED, outcome="finished"):
    yield started
    per_task = started.steps // started.tasks
    for task in range(started.tasks):
        yield TaskStarted(task)
        yield EpochStarted(task, 0)
        for step in range(per_task):
            yield StepDone(task, 0, task * per_task + step + 1, lambda: {"loss": 0.5, "removed_fraction": float("nan")})
        yield TaskEnded(task, 1.0)
        yield Evaluated(task, "test", (0.9, 0.8 if task else None), 0.85)
    yield RunEnded(outcome, 3.0)


class Recorder:
    def __init__(self):
        self.seen = []

    def observe(self, event):
        self.seen.append(event)


class Clock:
    """A clock that moves on at every look."""

    def __init__(self, step):
        self.now, self.step = 0.0, step

    def __call__(self):
        self.now += self.step
        return self.now


class TestAudience:
    def test_an_observer_that_draws_random_numbers_changes_none_of_the_runs(self):
        def draw(*event):
            return torch.rand(2).tolist(), np.random.rand(), random.random()  # noqa: NPY002

        def seeded():
            torch.manual_seed(1)
            np.random.seed(1)  # noqa: NPY002
            random.seed(1)

        gambler = Recorder()
        gambler.observe = draw
        seeded()
        expected = draw()
        seeded()
        for event in events():
            Audience([gambler]).tell(event)
        assert draw() == expected

    def test_everybody_is_told_in_order(self):
        first, second, told = Recorder(), Recorder(), list(events())
        audience = Audience(iter([first, second]))
        for event in told:
            audience.tell(event)
        assert first.seen == second.seen == told

    def test_events_cannot_be_changed(self):
        for event in events():
            with pytest.raises(AttributeError):
                setattr(event, dataclasses.fields(event)[0].name, 3)

    def test_which_steps_anybody_looks_at(self, tmp_path):
        sixth, ninth = (JsonLog(tmp_path / "log", every=every) for every in (6, 9))
        looked = [Audience(own).every for own in ([], [sixth], [sixth, ninth], [sixth, Recorder()])]
        assert looked == [0, 6, 3, 1]


def logged(path):
    return list(observers.read_log(path))


class TestLog:
    def test_it_has_a_line_an_event_and_one_step_in_so_many(self, tmp_path):
        path = tmp_path / "log.jsonl"
        log = JsonLog(path, every=5)
        for event in events():
            log.observe(event)
        lines = logged(path)
        steps = [line for line in lines if line["event"] == "step"]
        assert [line["step"] for line in steps] == [5, 10, 15, 20]
        assert steps[0]["removed_fraction"] == "nan"
        assert lines[0]["facts"] == {"seed": 0, "settings": {"lr": 1e-3}}
        assert [line["accuracies"] for line in lines if line["event"] == "evaluated"] == [[0.9, None], [0.9, 0.8]]
        assert lines[-1]["outcome"] == "finished"

    def test_measuring_is_left_alone_where_nobody_asks(self, tmp_path):
        def measure():
            raise AssertionError

        JsonLog(tmp_path / "log", every=7).observe(StepDone(0, 0, 6, measure))
        observers.ProgressLines(Console(file=io.StringIO()), runs=1).observe(StepDone(0, 0, 7, measure))

    def test_cut_short_anywhere_it_goes_on_with_whole_lines(self, tmp_path):
        path = tmp_path / "log.jsonl"
        for task in range(2):
            JsonLog(path, every=5).observe(TaskStarted(task))
        for content in cut_short(path.read_bytes()):
            path.write_bytes(content)
            whole = len(logged(path))
            JsonLog(path, every=5).observe(STARTED)
            assert [line["event"] for line in logged(path)] == ["task started"] * whole + ["run started"]

    def test_on_a_full_disk_it_is_a_clear_error(self, tmp_path):
        script = f"""{LIMIT_FILE_SIZE}
import sys
from pathlib import Path
from fopng.lab.storage.atomic import WriteError
from fopng.lab.engine.observers import JsonLog, TaskStarted
print("ready", flush=True)
limit(100)
try:
    while True:
        JsonLog(Path(sys.argv[1]), every=1).observe(TaskStarted(0))
except WriteError as error:
    print(error)
"""
        output = rest(start(script, str(tmp_path / "log.jsonl")))
        assert "log.jsonl, got: File too large" in output
        assert logged(tmp_path / "log.jsonl")

    def test_one_step_in_zero_is_refused(self):
        with pytest.raises(ValueError, match="got every=0"):
            JsonLog(None, every=0)


def lines(step, runs=1):
    """What is written of some runs, by a clock that moves on so much at every look."""
    file = io.StringIO()
    observer = observers.ProgressLines(Console(file=file, width=40), runs=runs, clock=Clock(step))
    for _ in range(runs):
        for event in events():
            observer.observe(event)
    return file.getvalue().splitlines()


class Watched:
    """Lines at moments that a test chooses."""

    def __init__(self, runs=1):
        self.file, self.clock = io.StringIO(), Clock(0.0)
        self.observer = observers.ProgressLines(Console(file=self.file), runs=runs, clock=self.clock)

    def at(self, now, event):
        self.clock.now = now
        self.observer.observe(event)
        return self.file.getvalue()


class TestLines:
    def test_they_come_every_few_seconds_and_say_the_time_left(self):
        written = lines(step=1.0)
        assert 3 <= len(written) <= 30 / 5 + 1
        assert written[1].startswith("split-mnist [b]fopng[/b] seed 0: task 1/2, ")
        assert written[1].endswith(" left")
        assert written[-1] == "split-mnist [b]fopng[/b] seed 0: task 2/2, accuracy 85.0 %, finished after 0:03"

    def test_a_quick_run_writes_one(self):
        assert len(lines(step=0.001)) == 1
        assert [line[:10] for line in lines(step=0.001, runs=3)] == ["run 1/3, s", "run 2/3, s", "run 3/3, s"]

    @pytest.mark.parametrize(
        ("steps", "before", "now", "said"), [(20, 10, 15, "75 %, 0:10 left"), (1000, 0, 5, "0 %, unknown time left")]
    )
    def test_the_time_left_counts_the_steps_of_this_process_once_there_are_some(self, steps, before, now, said):
        watched = Watched()
        watched.at(0.0, RunStarted("run", 2, steps, before, {}))
        assert said in watched.at(10.0, StepDone(1, 0, now, dict))

    def test_the_time_left_of_these_runs_and_of_all(self):
        watched = Watched(runs=6)
        for began in (0.0, 100.0):
            watched.at(began, RunStarted("runs", 2, 100, 0, {}, 2))
            for done in (1, 50):
                watched.at(began + done, StepDone(1, 0, done, dict))
        written = watched.file.getvalue()
        assert "runs 1-2/6, runs: task 1/2, 50 %, 0:50 left of these, 4:10 of all" in written
        assert "runs 3-4/6, runs: task 1/2, 50 %, 0:50 left of these, 2:30 of all" in written


class TestBar:
    @pytest.mark.parametrize("width", [40, 80, 120])
    def test_it_fits_the_terminal_and_shows_names_as_they_are(self, width):
        file = io.StringIO()
        console = Console(file=file, force_terminal=True, width=width, color_system=None)
        bar = observers.ProgressBar(console, runs=2, clock=Clock(1.0))
        for event in [*events(), *events()]:
            bar.observe(event)
        shown = file.getvalue()
        assert "[b]fopng[/b]" in shown
        assert "run 2/2" in shown or width < 80
        plain = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", shown)
        assert max(map(len, re.split(r"[\r\n]", plain))) <= width

    def test_it_stops_when_the_run_is_interrupted(self):
        bar = observers.ProgressBar(Console(file=io.StringIO(), force_terminal=True), runs=5)
        for event in events(outcome="interrupted"):
            bar.observe(event)
        assert bar._bars.finished is False
        assert not bar._bars.live.is_started

    def test_it_is_for_terminals(self):
        assert isinstance(observers.progress(Console(force_terminal=True), runs=1), observers.ProgressBar)
        assert isinstance(observers.progress(Console(file=io.StringIO()), runs=1), observers.ProgressLines)


def test_what_is_heavy_is_imported_only_when_asked():
    imported = "fopng.lab.engine.observers, fopng.lab.runs.store, fopng.lab.report.tables"
    script = f"import json, sys, {imported}; print(json.dumps(list(sys.modules)))"
    loaded = json.loads(subprocess.check_output([sys.executable, "-c", script], text=True))
    heavy = {"tensorboard", "altair", "vl_convert", "jinja2", "torch.utils.tensorboard", "mlflow", "wandb"}
    assert not heavy & set(loaded)
