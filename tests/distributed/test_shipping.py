"""Code and data for workers: what is sent, and that a machine unpacks it once."""

import dataclasses
import shutil

import numpy as np
import pytest
import torch
from PIL import Image

from fopng.lab.benchmarks import find_benchmark
from fopng.lab.cluster.shipping import code_for_workers, collect_goods, settle
from fopng.lab.data.cache import open_arrays
from fopng.lab.data.catalog import DATASETS
from fopng.lab.data.formats import _LENT
from fopng.lab.runs.request import configurations


@pytest.fixture
def machine(shared_cache, tmp_path, monkeypatch):
    """Go to another machine, where nothing is."""

    def go():
        monkeypatch.setenv("FOPNG_CACHE", str(tmp_path / "other" / "cache"))
        return tmp_path / "other"

    yield go
    _LENT.clear()


def configs(benchmark="split-digits", **changes):
    return configurations(benchmark=benchmark, methods=["sgd"], seeds=[0], **changes)


class Handles:
    """Large things by number, and how often each was fetched."""

    def __init__(self):
        self.things, self.fetched = [], []

    def put(self, thing):
        self.things.append(thing)
        return len(self.things) - 1

    def get(self, handle):
        self.fetched.append(handle)
        return self.things[handle]


def test_a_dataset_once_a_machine(machine):
    handles = Handles()
    goods = collect_goods(configs() * 3, None, handles.put)
    machine()
    assert open_arrays("digits", DATASETS["digits"].contents) is None
    for _ in range(3):
        settle(goods, handles.get)
    assert handles.fetched == [0]
    arrays = open_arrays("digits", DATASETS["digits"].contents)
    assert all(np.array_equal(arrays[part], handles.things[0][part]) for part in arrays)


def test_a_folder_of_images(machine, tmp_path):
    random, folder = np.random.default_rng(0), tmp_path / "mine"
    for part in ("train", "test"):
        for name in ("cat", "dog"):
            (folder / part / name).mkdir(parents=True)
            for number in range(2):
                pixels = random.integers(0, 255, (6, 6), dtype=np.uint8)
                Image.fromarray(pixels).save(folder / part / name / f"{number}.png")
    [config] = configs(str(folder))
    before = find_benchmark(config.benchmark).build(seed=0, validation=False)
    handles = Handles()
    goods = collect_goods([config], None, handles.put)
    machine()
    shutil.move(folder, tmp_path / "gone")
    with pytest.raises(ValueError, match="Expected a benchmark"):
        find_benchmark(config.benchmark)
    settle(goods, handles.get)
    _LENT.clear()  # another process on the same machine
    settle(goods, handles.get)
    assert handles.fetched == [0]
    after = find_benchmark(config.benchmark).build(seed=0, validation=False)
    for one, other in zip(before, after, strict=True):
        assert torch.equal(one.train.read(torch.arange(2))[0], other.train.read(torch.arange(2))[0])


def test_a_machine_whose_cache_cannot_be_written(machine, tmp_path, monkeypatch):
    handles = Handles()
    goods = collect_goods(configs(), None, handles.put)
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("FOPNG_CACHE", str(tmp_path / "file" / "cache"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    settle(goods, handles.get)
    assert open_arrays("digits", DATASETS["digits"].contents) is not None


def test_this_package_travels(shared_cache, tmp_path):
    code = code_for_workers(configs(), tmp_path / "runs")
    assert [path.rpartition("/")[2] for path in code["py_modules"]] == ["fopng"]
    assert "working_dir" not in code


@pytest.mark.parametrize("member", ["benchmark", "model"])
def test_the_current_folder_travels_when_a_function_lives_there(member, shared_cache, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "its_own_module.py").write_text("def stream(): ...")
    [config] = configs()
    code = code_for_workers([dataclasses.replace(config, **{member: "its_own_module:stream"})], tmp_path / "runs")
    assert code["working_dir"] == str(tmp_path)
    assert "/runs" in code["excludes"]
    installed = dataclasses.replace(config, **{member: "json:loads"})
    assert "working_dir" not in code_for_workers([installed], tmp_path / "runs")
