import sys

import pytest
from PIL import Image

from fopng.lab.benchmarks import (
    BENCHMARKS,
    PAPER,
    OwnStream,
    Permuted,
    Rotated,
    Scenario,
    SplitByClass,
    find_benchmark,
    settable,
)
from fopng.lab.data import DATASETS, KnownDataset
from fopng.lab.data.named import named_function

KNOWN = [name for name, dataset in DATASETS.items() if isinstance(dataset, KnownDataset)]


def test_the_papers_five():
    assert {
        "permuted-mnist": Permuted("mnist", Scenario.DOMAIN, tasks=5),
        "rotated-mnist": Rotated("mnist", Scenario.DOMAIN, angles=(0, 10, 20, 30, 40)),
        "split-mnist": SplitByClass("mnist", Scenario.DOMAIN, classes_per_task=2),
        "split-cifar10": SplitByClass("cifar10", Scenario.TASK, classes_per_task=2),
        "split-cifar100": SplitByClass("cifar100", Scenario.TASK, classes_per_task=10),
    } == PAPER


def test_every_kind_over_every_dataset():
    assert {f"{kind}-{name}" for kind in ("split", "rotated", "permuted") for name in KNOWN} == set(BENCHMARKS)
    assert all(find_benchmark(name) is benchmark for name, benchmark in BENCHMARKS.items())


def test_what_can_be_set():
    assert {name: list(settable(find_benchmark(f"{name}-mnist"))) for name in ("split", "rotated", "permuted")} == {
        "split": ["classes_per_task", "tasks", "order", "shuffled"],
        "rotated": ["angles"],
        "permuted": ["tasks"],
    }
    assert settable(OwnStream("mine:stream")) == {}


def test_an_unknown_name_gets_a_hint():
    with pytest.raises(ValueError, match=r"Did you mean split-mnist\?"):
        find_benchmark("splitmnist")
    with pytest.raises(ValueError, match="Run: fopng benchmarks"):
        find_benchmark("zzz")


class TestFolders:
    @pytest.fixture(autouse=True)
    def photos(self, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        for name in "abcd":
            (tmp_path / "photos" / name).mkdir(parents=True)
            for number in range(10):
                Image.new("RGB", (8, 8), number).save(tmp_path / "photos" / name / f"{number}.png")

    def test_split_by_class(self):
        stream = find_benchmark("photos").build(seed=0, validation=False)
        assert [task.name for task in stream] == ["a, b", "c, d"]
        assert stream.heads == (2, 2)
        assert stream.input_shape == (3, 8, 8)

    def test_other_kinds(self):
        assert len(find_benchmark("rotated-photos").build(seed=0, validation=False)) == 5
        assert find_benchmark("permuted-./photos").build(seed=0, validation=False).heads == (4,)


class TestOwnStreams:
    @pytest.fixture(autouse=True)
    def module(self, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(sys, "path", list(sys.path))
        monkeypatch.delitem(sys.modules, "mine", raising=False)
        (tmp_path / "mine.py").write_text(
            "import torch\n"
            "from fopng.lab.benchmarks import Scenario, Task, TaskStream\n"
            "def stream(*, seed, validation):\n"
            "    data = torch.full((4, 2), float(seed)), torch.tensor([0, 1, 0, 1])\n"
            "    task = Task.of('only', train=data, test=data, validation=data if validation else None)\n"
            "    return TaskStream.of('mine', [task], Scenario.DOMAIN)\n"
            "def forgetful(*, seed, validation):\n"
            "    return stream(seed=seed, validation=False)\n"
            "def wrong(*, seed, validation):\n"
            "    return [seed]\n"
            "number = 3\n"
        )

    def test_a_function_makes_the_stream(self):
        benchmark = find_benchmark("mine:stream")
        assert isinstance(benchmark, OwnStream)
        assert benchmark.name == "mine:stream"
        stream = benchmark.build(seed=7, validation=True)
        assert stream[0].validation.tensors()[0].max() == 7

    @pytest.mark.parametrize(
        ("reference", "error", "problem"),
        [
            ("mine:wrong", TypeError, "Expected a TaskStream from mine:wrong, got list"),
            ("mine:forgetful", ValueError, "Expected validation in every task"),
            ("mine:missing", ValueError, "Expected a function for 'mine:missing', got NoneType"),
            ("mine:number", ValueError, "got int"),
            ("nowhere:stream", ValueError, "Expected a module 'nowhere'"),
        ],
    )
    def test_functions_are_checked(self, reference, error, problem):
        with pytest.raises(error, match=problem):
            find_benchmark(reference).build(seed=0, validation=True)

    def test_an_import_inside_the_module_fails_as_itself(self, tmp_path):
        (tmp_path / "broken_one.py").write_text("import not_there_at_all\n")
        with pytest.raises(ModuleNotFoundError, match="not_there_at_all"):
            named_function("broken_one:x")

    @pytest.mark.parametrize("reference", [":x", "x:", "x"])
    def test_references_have_two_parts(self, reference):
        with pytest.raises(ValueError, match="Expected module:function"):
            named_function(reference)
