"""Results in files to be committed: nothing is lost, nothing depends on the order, damage is said."""

import dataclasses
import json
import random

import pytest

from fopng.lab.runs.bundle import bundle_text, read_bundle
from fopng.lab.runs.export import write_bundles
from fopng.lab.runs.result import DamagedFileError
from fopng.lab.runs.store import load_results
from paper_runs import paper_run
from sweep_runs import held_out, on_test


def results():
    runs = [
        paper_run(b, m, s, 0.8) for b in ("split-mnist", "split-cifar10") for m in ("sgd", "fopng") for s in range(3)
    ]
    runs += [held_out(0.7, seed=5), held_out(None, seed=6), on_test(0.5, protocol="printed", first_task_lr=None)]
    compressed = paper_run("split-mnist", "ogd", 0, 0.8)
    measured = {"compression_error": (None, 0.2, 0.3)}
    return [*runs, dataclasses.replace(compressed, measured=measured).named("comparison", "ablation/damping")]


def by_key(some):
    return {result.config.key: result for result in some}


def test_nothing_is_lost(tmp_path):
    written = write_bundles(tmp_path, results())
    assert [path.name for path in written] == [
        "split-cifar10-matched.results.json",
        "split-mnist-matched-validation.results.json",
        "split-mnist-matched.results.json",
        "split-mnist-printed.results.json",
    ]
    assert by_key(load_results([tmp_path])) == by_key(results())
    assert [bundle_text(read_bundle(path)) for path in written] == [path.read_text() for path in written]


def test_the_same_results_give_the_same_files():
    shuffled = random.Random(0).sample(results(), len(results()))
    assert bundle_text(shuffled) == bundle_text(results())


def test_it_is_small():
    runs = [paper_run("split-mnist", "fopng", seed, 0.8) for seed in range(50)]
    assert len(bundle_text(runs)) < 50 * 720


def test_a_bundle_of_format_1_is_read(tmp_path):
    new = json.loads(bundle_text([held_out(0.7)]))
    for run in new["results"][0]["runs"]:
        del run["experiments"]
        run["removed_fraction_by_task"] = run.pop("measured")["removed_fraction"]
    (tmp_path / "old.results.json").write_text(json.dumps({**new, "format": 1}))
    assert load_results([tmp_path]) == [held_out(0.7)]


def test_a_number_that_was_changed_on_the_disk_is_not_read(tmp_path):
    path, text = tmp_path / "x.results.json", bundle_text([held_out(0.7)])
    path.write_text(text)
    assert load_results([path]) == [held_out(0.7)]
    path.write_text(text.replace("0.7", "0.8"))
    with pytest.raises(DamagedFileError, match=r"got other contents \(SHA-256\)"):
        load_results([path])


@pytest.mark.parametrize(
    "text", ["", "[]", '{"format": 9, "results": []}', '{"format": 2, "results": [{"shared": {}, "runs": [{}]}]}']
)
def test_what_cannot_be_read(tmp_path, text):
    (tmp_path / "x.results.json").write_text(text)
    with pytest.raises(DamagedFileError, match="Expected a file of results"):
        load_results([tmp_path])
    told = []
    assert load_results([tmp_path], damaged=told.append) == []
    assert len(told) == 1
