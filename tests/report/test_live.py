"""Runs as they go: what a folder says at any moment, torn lines and all, in JSON, in the terminal and as a page."""

import io
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import urllib.request

import pytest
from rich.console import Console

from fopng.cli.watch import server, shown
from fopng.lab.report.live import snapshot, summary_of
from fopng.lab.runs.store import Store
from sample_runs import config, result

STARTED = {"event": "run started", "time": 1000.0, "tasks": 4, "steps": 400, "done": 0}


def evaluated(task, *accuracies, time=1050.0):
    return {"event": "evaluated", "time": time, "task": task, "part": "test", "accuracies": accuracies, "average": 0.5}


def step(number, time, loss=0.5):
    return {"event": "step", "time": time, "step": number, "loss": loss}


def begun(root, *lines, torn="", held=True, **changes):
    """The folder of a run under way, with these lines in its log."""
    one = config(**changes)
    folder = root / one.benchmark / one.method / one.key
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(one.as_dict()))
    (folder / "log.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines) + torn)
    if held:
        (folder / "lock").write_text(json.dumps({"process": os.getpid(), "host": socket.gethostname()}))
    return folder


def test_a_run_under_way(tmp_path):
    begun(
        tmp_path, STARTED, evaluated(0, 0.9, None), step(150, 1075.0), evaluated(1, 0.7, 0.8), step(200, 1100.0, 0.25)
    )
    [run] = snapshot(tmp_path, now=1110.0)
    assert (run.state, run.tasks, run.learnt, run.step, run.share, run.loss) == ("under way", 4, 2, 200, 0.5, 0.25)
    assert run.curve == pytest.approx([0.9, 0.75])
    assert run.forgetting == pytest.approx(0.2)
    assert run.seconds_left == pytest.approx(90)


def test_after_an_interruption_the_pace_is_that_of_this_time(tmp_path):
    again = {**STARTED, "time": 5000.0, "done": 100}
    begun(tmp_path, STARTED, step(150, 1075.0), again, step(120, 5010.0))
    [run] = snapshot(tmp_path, now=5010.0)
    assert (run.step, run.seconds_left) == (120, pytest.approx(140))


@pytest.mark.parametrize("torn", ['{"event": "step", "ti', "[]\n", "not JSON\n", '{"event": "step"}\n', "\x00\xff\n"])
def test_what_is_being_written_is_passed_over(tmp_path, torn):
    begun(tmp_path, STARTED, step(100, 1025.0), torn=torn)
    [run] = snapshot(tmp_path, now=1025.0)
    assert (run.step, run.loss) == (100, 0.5)


def test_a_log_that_grew_is_read_again(tmp_path):
    folder = begun(tmp_path, STARTED, step(100, 1025.0))
    assert snapshot(tmp_path)[0].step == 100
    with (folder / "log.jsonl").open("a") as log:
        log.write(json.dumps(step(300, 1075.0)) + "\n")
    assert snapshot(tmp_path)[0].step == 300


def test_every_state(tmp_path):
    begun(tmp_path, seed=0, held=False)
    begun(tmp_path, STARTED, seed=1)
    done = result(seed=2)
    Store(tmp_path).take([done])
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "config.json").write_text("{")
    found = snapshot(tmp_path)
    assert [run.state for run in found] == ["unfinished", "under way", "finished"]
    assert (found[0].share, found[2].share) == (0.0, 1.0)
    assert summary_of(found) == "1 unfinished, 1 under way, 1 finished"


def test_the_terminal_shows_those_under_way_first_where_there_is_no_room(tmp_path):
    for seed in range(4):
        begun(tmp_path, STARTED, step(100, 1025.0), seed=seed, held=seed == 3)
    console = Console(width=120, record=True, file=io.StringIO())
    console.print(shown(snapshot(tmp_path), room=1))
    text = console.export_text()
    assert "seed 3" in text
    assert "3 not shown" in text


def test_the_page_is_on_this_machine_alone_and_runs_nothing(tmp_path):
    begun(tmp_path, STARTED, evaluated(0, 0.9, None), evaluated(1, 0.7, 0.8), method="<script>alert(1)</script>")
    with server(tmp_path, 0, every=2) as served:
        thread = threading.Thread(target=served.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        host, port = served.server_address
        with urllib.request.urlopen(f"http://{host}:{port}/") as answer:
            page = answer.read().decode()
        served.shutdown()
        thread.join()
    assert host == "127.0.0.1"
    assert "<script" not in page
    assert "&lt;script&gt;" in page
    assert "default-src 'none'" in page
    assert 'http-equiv="refresh" content="2"' in page
    assert "<svg" in page


def test_a_port_that_is_taken(tmp_path):
    with server(tmp_path, 0, every=2) as served, pytest.raises(ValueError, match="Expected a port that is free"):
        server(tmp_path, served.server_address[1], every=2)


def test_the_command_prints_one_snapshot(tmp_path, command_line):
    begun(tmp_path, STARTED, step(100, 1025.0))
    code, out, _ = command_line("watch", str(tmp_path), "--json")
    assert (code, [run["share"] for run in json.loads(out)]) == (0, [0.25])
    code, out, _ = command_line("watch", str(tmp_path))
    assert (code, "1 under way" in out) == (0, True)
    code, out, err = command_line("watch", str(tmp_path / "nowhere"))
    assert (code, out) == (2, "")
    assert "Expected a folder of runs" in err


def test_ctrl_c_ends_the_server_in_silence(tmp_path):
    command = [sys.executable, "-m", "fopng", "watch", str(tmp_path), "--serve"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        told = process.stderr.readline()
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert told.startswith("Watching ")
    assert (out, "Traceback" in err) == ("", False)
