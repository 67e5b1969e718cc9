"""Results in files to be committed: nothing is lost, nothing depends on the order, damage is said."""

import dataclasses
import json
import random

import pytest

from fopng.lab.runs.bundle import bundle_text, read_bundle
from fopng.lab.runs.export import write_bundles
from fopng.lab.runs.result import DamagedFileError
from fopng.lab.runs.store import Store, load_results
from paper_runs import paper_run
from sweep_runs import held_out, on_test


def results():
    runs = [
        paper_run(b, m, s, 0.8) for b in ("split-mnist", "split-cifar10") for m in ("sgd", "fopng") for s in range(3)
    ]
    runs += [held_out(0.7, seed=5), held_out(None, seed=6), on_test(0.5, protocol="printed", first_task_lr=None)]
    compressed = paper_run("split-mnist", "ogd", 0, 0.8)
    return [
        *runs,
        dataclasses.replace(
            compressed, measured={"compression_error": (None, 0.2, 0.3)}, experiments=("comparison", "ablation/damping")
        ),
    ]


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
    for path in written:
        json.loads(path.read_text(encoding="utf-8"))


def test_the_same_results_give_the_same_files():
    shuffled = random.Random(0).sample(results(), len(results()))
    assert bundle_text(shuffled) == bundle_text(results())


def test_a_bundle_read_and_written_is_the_same(tmp_path):
    [path] = write_bundles(tmp_path, [held_out(0.7, seed=5)])
    assert bundle_text(read_bundle(path)) == path.read_text(encoding="utf-8")


def test_it_is_small():
    runs = [paper_run("split-mnist", "fopng", seed, 0.8) for seed in range(50)]
    assert len(bundle_text(runs)) < 50 * 720


def test_runs_and_bundles_and_files_each_once(tmp_path):
    runs = results()
    [path] = write_bundles(tmp_path / "bundles", runs[:1])
    store = Store(tmp_path / "runs")
    for run in runs[:2]:
        with store.folder(run.config).claim():
            store.folder(run.config).finish(run)
    found = load_results([tmp_path / "runs", tmp_path / "bundles", path])
    assert by_key(found) == by_key(runs[:2])
    assert len(found) == 2
    assert load_results([tmp_path], lambda result: result.config.method == "none") == []


def test_a_run_in_two_places_has_the_experiments_of_both(tmp_path):
    run = held_out(0.7, seed=5)
    [path] = write_bundles(tmp_path / "bundles", [run.named("sweep/a")])
    store = Store(tmp_path / "runs")
    assert store.take([run.named("sweep/b")]) == 1
    assert load_results([store.root, path])[0].experiments == ("sweep/a", "sweep/b")
    assert store.take(read_bundle(path)) == 0
    assert store.results()[0].experiments == ("sweep/a", "sweep/b")


def test_what_cannot_be_read(tmp_path):
    path = tmp_path / "x.results.json"
    for text in ("", "[]", '{"format": 9, "results": []}', '{"format": 2, "results": [{"shared": {}, "runs": [{}]}]}'):
        path.write_text(text)
        with pytest.raises(DamagedFileError, match="Expected a file of results"):
            load_results([tmp_path])
    told = []
    assert load_results([tmp_path], damaged=told.append) == []
    assert len(told) == 1
    with pytest.raises(ValueError, match="Name one that exists"):
        load_results([tmp_path / "nowhere"])
