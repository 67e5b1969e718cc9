"""Trackers, each with its real library writing to a folder that is read back."""

import json
import random
import struct
import sys

import numpy as np
import pytest
import torch

from fopng.lab.engine.observers import (
    TRACKERS,
    Evaluated,
    RunEnded,
    RunStarted,
    StepDone,
    Tracked,
    make_trackers,
    require_trackers,
)

FACTS = {"benchmark": "split-mnist", "method": "fopng", "seed": 0, "settings": {"lr": 1e-3, "score": None}}
SCALARS = {
    "step/loss": [(10, 0.5), (20, 0.25)],
    "test/average": [(10, 0.9), (20, 0.85)],
    "test/task 2": [(20, 0.8)],
}
"""What every tracker holds after `tell`."""


def tell(observer, *, since=0, until=20, outcome="finished"):
    """Two tasks of ten steps, from one step to another."""
    observer.observe(RunStarted("split-mnist fopng seed 0", 2, 20, since, FACTS))
    for step in range(since + 1, until + 1):
        values = {"loss": 5 / step, "removed_fraction": float("nan")}
        observer.observe(StepDone((step - 1) // 10, 0, step, lambda values=values: values))
        if step % 10 == 0:
            second = 0.8 if step == 20 else None
            observer.observe(Evaluated(step // 10 - 1, "test", (0.9, second), 0.85 if second else 0.9))
    observer.observe(RunEnded(outcome, 3.0))


def tracked(folder, name, key="0123abcd", every=10):
    place = Tracked(runs=folder, run=folder / key, key=key, every=every)
    [tracker] = make_trackers([name, name], place)
    return tracker


def read_tensorboard(folder, key="0123abcd"):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    found = EventAccumulator(str(folder / key / "tensorboard")).Reload()
    names = [name for name in found.Tags()["scalars"] if name in SCALARS]
    return {name: [(each.step, pytest.approx(each.value)) for each in found.Scalars(name)] for name in names}


@pytest.fixture
def mlflow_client(monkeypatch):
    pytest.importorskip("mlflow")
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.delenv("MLFLOW_EXPERIMENT_NAME", raising=False)
    from mlflow import MlflowClient

    return lambda folder: MlflowClient(tracking_uri=f"sqlite:///{folder}/mlflow.db")


@pytest.fixture
def wandb(monkeypatch):
    for name in ("WANDB_MODE", "WANDB_PROJECT", "WANDB_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    return pytest.importorskip("wandb")


def read_wandb(file):
    """The records of an offline run: LevelDB's log format, one block of 32 KB at most here."""
    from wandb.proto import wandb_internal_pb2

    content, at, records = file.read_bytes(), 7, []
    assert content[:4] == b":W&B"
    assert len(content) < 2**15
    while at < len(content):
        size = struct.unpack("<H", content[at + 4 : at + 6])[0]
        record = wandb_internal_pb2.Record()
        record.ParseFromString(content[at + 7 : at + 7 + size])
        records.append(record)
        at += 7 + size
    return records


def test_tensorboard_gets_the_scalars(tmp_path):
    tell(tracked(tmp_path, "tensorboard"))
    assert read_tensorboard(tmp_path) == SCALARS


def test_tensorboard_hides_what_is_done_again_after_a_kill(tmp_path):
    killed = tracked(tmp_path, "tensorboard", every=5)
    tell(killed, until=20)
    tell(tracked(tmp_path, "tensorboard"), since=10)
    assert [step for step, _ in read_tensorboard(tmp_path)["step/loss"]] == [5, 10, 20]


def test_mlflow_gets_the_scalars_the_settings_and_the_outcome(tmp_path, mlflow_client):
    tell(tracked(tmp_path, "mlflow"))
    tell(tracked(tmp_path, "mlflow", key="other"), outcome="failed")
    client = mlflow_client(tmp_path)
    experiment = client.get_experiment_by_name("split-mnist").experiment_id
    [run] = client.search_runs([experiment], "tags.`fopng.key` = '0123abcd'")
    histories = {name: client.get_metric_history(run.info.run_id, name) for name in SCALARS}
    assert {name: [(each.step, each.value) for each in history] for name, history in histories.items()} == SCALARS
    assert run.data.params == {
        "benchmark": "split-mnist",
        "method": "fopng",
        "seed": "0",
        "settings.lr": "0.001",
        "settings.score": "None",
    }
    assert (run.info.run_name, run.info.status) == ("split-mnist fopng seed 0", "FINISHED")
    [other] = client.search_runs([experiment], "tags.`fopng.key` = 'other'")
    assert (other.info.status, other.data.tags["fopng.outcome"]) == ("FAILED", "failed")


def test_mlflow_goes_on_with_a_run_that_was_interrupted(tmp_path, mlflow_client):
    tell(tracked(tmp_path, "mlflow"), until=10, outcome="interrupted")
    tell(tracked(tmp_path, "mlflow"), since=10)
    client = mlflow_client(tmp_path)
    [run] = client.search_runs([client.get_experiment_by_name("split-mnist").experiment_id])
    assert run.info.status == "FINISHED"
    assert [each.step for each in client.get_metric_history(run.info.run_id, "step/loss")] == [10, 20]


def test_wandb_gets_the_scalars_offline_of_runs_side_by_side(tmp_path, wandb):
    first, second = tracked(tmp_path, "wandb"), tracked(tmp_path, "wandb", key="other")
    second.observe(RunStarted("another", 2, 20, 0, {}))
    tell(first)
    second.observe(RunEnded("interrupted", 1.0))
    [file] = (tmp_path / "0123abcd").glob("wandb/offline-run-*-0123abcd/*.wandb")
    records = read_wandb(file)
    [run] = [record.run for record in records if record.WhichOneof("record_type") == "run"]
    assert (run.project, run.run_group, run.display_name) == ("fopng", "split-mnist fopng", "split-mnist fopng seed 0")
    settings = {item.key: item.value_json for item in run.config.update}
    assert json.loads(settings["settings"]) == FACTS["settings"]
    found = {}
    for record in records:
        if record.WhichOneof("record_type") == "history":
            values = {".".join(item.nested_key) or item.key: item.value_json for item in record.history.item}
            for name in SCALARS.keys() & values.keys():
                found.setdefault(name, []).append((int(values["steps"]), float(values[name])))
    assert found == SCALARS
    ends = [record.exit.exit_code for record in records if record.WhichOneof("record_type") == "exit"]
    assert ends == [0]
    assert list((tmp_path / "other").glob("wandb/offline-run-*-other/*.wandb"))


@pytest.mark.parametrize("name", TRACKERS)
def test_a_library_that_draws_random_numbers_changes_none_of_the_runs(name, tmp_path, monkeypatch):
    def draw(*anything):
        return torch.rand(2).tolist(), np.random.rand(), random.random()  # noqa: NPY002

    class Gambler:
        __init__ = log = close = lambda *anything: (draw(), None)[1]

    def seed():
        torch.manual_seed(1)
        np.random.seed(1)  # noqa: NPY002
        random.seed(1)

    monkeypatch.setitem(TRACKERS, name, Gambler)
    seed()
    expected = draw()
    seed()
    tell(tracked(tmp_path, name))
    assert draw() == expected


@pytest.mark.parametrize("name", TRACKERS)
def test_without_the_package_it_says_what_to_install(name, monkeypatch):
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ModuleNotFoundError, match=rf"pip install 'fopng\[{name}\]'"):
        require_trackers(["tensorboard", name])


def test_other_names_and_numbers_are_refused(tmp_path):
    with pytest.raises(ValueError, match="Expected a tracker out of tensorboard, mlflow, wandb, got 'excel'"):
        require_trackers(["excel"])
    with pytest.raises(ValueError, match="got every=0"):
        tracked(tmp_path, "tensorboard", every=0)
