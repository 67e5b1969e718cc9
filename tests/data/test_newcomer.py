"""How somebody adds a dataset: a function that returns arrays, tried on the command line as they would."""

import json
import sys

import numpy as np
import pytest

from fopng.lab.benchmarks import find_benchmark
from fopng.lab.data import DATASETS, Dataset

MINE = '''
import numpy as np
import torch
from fopng.lab.data import Dataset


def table():
    """Measurements of four kinds of things: numbers."""
    kinds = np.arange(200) % 4
    return np.random.default_rng(0).normal(kinds[:, None], 0.1, (200, 6)), kinds


def sentences():
    """Sequences of words by number."""
    kinds = np.arange(200) % 4
    return np.random.default_rng(0).integers(0, 10, (200, 8)) + 10 * kinds[:, None], kinds


def read(files):
    inputs = np.loadtxt(files["table.csv"], delimiter=",")
    return inputs, np.arange(len(inputs)) % 4


FILE = Dataset("table", read, {"table.csv": "HASH"})


class Words(torch.nn.Module):
    """The mean of the words' vectors, and a head for each task or one for all."""

    def __init__(self, stream):
        super().__init__()
        self.words = torch.nn.Embedding(40, 16)
        self.heads = torch.nn.ModuleList(torch.nn.Linear(16, width) for width in stream.heads)

    def forward(self, x, task=None):
        return self.heads[0 if len(self.heads) == 1 else task](self.words(x).mean(1))
'''


@pytest.fixture
def run(empty_machine, monkeypatch, command_line):
    """`fopng run` in a folder with the module above; the results, or exit code and message."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "mine", raising=False)
    (empty_machine / "work" / "mine.py").write_text(MINE)

    def run(*arguments):
        options = "--epochs", "8", "--first-task-lr", "0.1", "--set", "lr=0.01", "--threads", "1", "--json"
        code, out, err = command_line("run", *arguments, *options)
        return json.loads(out) if code == 0 else (code, err)

    return run


@pytest.mark.parametrize(
    ("arguments", "benchmark", "tasks"),
    [
        (("split-mine:table", "sgd", "--scenario", "task"), "split-mine:table", 2),
        (("permuted-mnist", "fopng", "--dataset", "mine:table", "--set", "tasks=2"), "permuted-mnist", 2),
        (("split-mine:sentences", "sgd", "--model", "mine:Words", "--scenario", "task"), "split-mine:sentences", 2),
        (("permuted-mine:sentences", "ewc", "--model", "mine:Words", "--set", "tasks=3"), "permuted-mine:sentences", 3),
    ],
)
@pytest.mark.parametrize("engine", ["single", "replicas"])
def test_numbers_and_words_are_learned(run, arguments, benchmark, tasks, engine):
    for found in run(*arguments, "--engine", engine, "--seeds", "2"):
        assert found["config"]["benchmark"] == benchmark
        assert found["config"]["dataset"].startswith("mine:")
        assert len(found["accuracy"]) == tasks
        assert found["accuracy"][0][0] > 0.7  # the first task, right after it was learned


def test_a_model_of_images_takes_no_words(run):
    code, message = run("split-mine:sentences", "sgd")
    assert code == 2
    assert "Expected a model of your own for inputs of whole numbers, got mlp. Give --model module:function" in message


def test_a_file_with_a_hash(run, empty_machine):
    data = "\n".join(",".join(str(number % 4 + column / 10) for column in range(3)) for number in range(100))
    (empty_machine / "data").mkdir()
    (empty_machine / "data" / "table.csv").write_text(data)
    code, message = run("split-mine:FILE", "sgd", "--data-dir", str(empty_machine / "data"))
    assert code == 1
    assert "table.csv: Expected a file of the hash HASH, got other contents" in message


def test_a_registered_one_is_listed_and_has_nothing_to_fetch(empty_machine, monkeypatch, command_line):
    monkeypatch.setitem(DATASETS, "readings", Dataset("readings", lambda: (np.ones((20, 3)), np.arange(20) % 2)))
    code, out, _ = command_line("data", "list")
    assert (code, "returned by a function" in " ".join(out.split())) == (0, True)
    assert json.loads(command_line("data", "list", "--json")[1])[-1]["state"] == "embedded"
    assert command_line("data", "fetch", "readings")[:2] == (0, "readings: already here\n")
    assert command_line("data", "verify", "readings")[0] == 0
    stream = find_benchmark("split-readings").build(seed=0, validation=False)
    assert (len(stream), stream.input_shape) == (1, (3,))
