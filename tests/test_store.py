"""Runs on disk: claimed by one, finished once, found again, each file read once."""

import json
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from faults import LIMIT_FILE_SIZE, rest, start
from fopng.lab.runs.config import RunConfig
from fopng.lab.runs.export import write_bundles
from fopng.lab.runs.reference import joint_runs
from fopng.lab.runs.result import DamagedFileError, RunResult
from fopng.lab.runs.store import Store, folder_name, load_results, selection
from fopng.lab.storage.locks import HeldError
from sample_runs import config, result


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "runs")


@pytest.fixture
def parsed(monkeypatch):
    """The keys of the results that are parsed, one after another."""
    keys, parse = [], RunResult.from_dict

    def counted(members):
        made = parse(members)
        keys.append(made.config.key)
        return made

    monkeypatch.setattr(RunResult, "from_dict", counted)
    return keys


def finish(store, there):
    folder = store.folder(there.config)
    with folder.claim() as already:
        assert already is None
        folder.finish(there)
    return folder


def test_a_run_from_beginning_to_end(store):
    folder = store.folder(config())
    assert folder.path == store.root / "split-mnist" / "fopng" / config().key
    assert folder.result() is None
    with folder.claim() as already:
        assert already is None
        assert RunConfig.from_dict(json.loads((folder.path / "config.json").read_text())) == config()
        folder.checkpoint.save({"step": 1})
        folder.finish(result())
    assert {path.name for path in folder.path.iterdir()} == {"config.json", "result.json"}
    with folder.claim() as already:
        assert already == folder.result() == result()


def test_a_finished_run_is_forgotten_when_asked(store):
    folder = finish(store, result())
    folder.log.write_text("{}\n")
    with folder.claim(again=True) as already:
        assert already is None
        assert not folder.log.exists()
    assert folder.result() is None


def test_an_interrupted_run_keeps_its_checkpoint(store):
    folder = store.folder(config())
    with folder.claim():
        folder.checkpoint.save({"step": 1})
    with pytest.raises(KeyboardInterrupt), folder.claim():
        raise KeyboardInterrupt
    with folder.claim() as already:
        assert already is None
        assert folder.checkpoint.load().state == {"step": 1}


def test_two_at_once_do_not_both_do_it(store):
    with store.folder(config()).claim(), pytest.raises(HeldError), store.folder(config()).claim():
        pass


def test_two_processes_do_a_run_once_between_them(store):
    script = """
import sys, time
from pathlib import Path
from fopng.lab.storage.locks import HeldError
from fopng.lab.runs.store import Store
from sample_runs import config, result
print("ready", flush=True)
folder = Store(Path(sys.argv[1])).folder(config())
while True:
    try:
        with folder.claim() as already:
            if already is None:
                time.sleep(0.1)
                folder.finish(result())
            print("read" if already else "done")
            break
    except HeldError:
        time.sleep(0.01)
"""
    processes = [start(script, str(store.root)) for _ in range(3)]
    assert sorted(rest(process).strip() for process in processes) == ["done", "read", "read"]


def test_a_finished_run_gets_the_names_of_more_experiments(store):
    folder = finish(store, result().named("comparison"))
    named = folder.add_experiments(result(), "ablation/damping")
    assert named.experiments == ("ablation/damping", "comparison")
    assert folder.result() == named
    (folder.path / "result.json").unlink()
    assert folder.add_experiments(named, "comparison") == named
    assert folder.result() is None


def test_names_that_two_processes_add_at_once_are_all_there(store):
    folder = finish(store, result())
    script = """
import sys
from pathlib import Path
from fopng.lab.runs.store import Store
from sample_runs import config
folder = Store(Path(sys.argv[1])).folder(config())
result = folder.result()
print("ready", flush=True)
for number in range(20):
    folder.add_experiments(result, f"{sys.argv[2]}/{number}")
"""
    for process in [start(script, str(store.root), name) for name in "ab"]:
        rest(process)
    assert set(folder.result().experiments) == {f"{name}/{number}" for name in "ab" for number in range(20)}


def test_what_killed_writers_left_is_removed_and_a_damaged_configuration_written_anew(store):
    folder = store.folder(config())
    folder.path.mkdir(parents=True)
    (folder.path / ".result.json.0a1b2c3d.partial").write_text("half")
    (folder.path / "config.json").write_text("{")
    with folder.claim():
        assert not list(folder.path.glob("*.partial"))
        assert json.loads((folder.path / "config.json").read_text())["seed"] == 0


def test_a_damaged_result_is_told_and_again_mends_it(store):
    folder = finish(store, result())
    (folder.path / "result.json").write_text("{")
    with pytest.raises(DamagedFileError, match=r"result\.json"), folder.claim():
        pass
    with folder.claim(again=True) as already:
        assert already is None


def test_a_result_in_the_wrong_folder_is_told(store):
    folder, other = finish(store, result()), store.folder(config(seed=1))
    other.path.mkdir(parents=True)
    (folder.path / "result.json").rename(other.path / "result.json")
    with pytest.raises(DamagedFileError, match=f"Expected the run {config(seed=1).key}"):
        other.result()
    with pytest.raises(ValueError, match="Expected the result of run"):
        other.finish(result())


def test_a_full_disk_keeps_the_run_unfinished_and_its_checkpoint_whole(store):
    folder = store.folder(config())
    with folder.claim():
        folder.checkpoint.save({"step": 1})
    script = f"""{LIMIT_FILE_SIZE}
import sys
from pathlib import Path
from fopng.lab.storage.atomic import WriteError
from fopng.lab.runs.store import Store
from sample_runs import config, result
print("ready", flush=True)
folder = Store(Path(sys.argv[1])).folder(config())
limit(100)
try:
    with folder.claim():
        folder.finish(result())
except WriteError as error:
    print(error)
"""
    assert "result.json, got: File too large" in rest(start(script, str(store.root)))
    with folder.claim() as already:
        assert already is None
        assert folder.checkpoint.load().state == {"step": 1}


def test_a_real_full_disk(tmp_path):
    mount = tmp_path / "small"
    mount.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", mount]
    if subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("mounting a small file system is not permitted here")
    try:
        folder = Store(mount).folder(config())
        with folder.claim():
            checkpoint = folder.checkpoint
            checkpoint.save({"step": 1})
            with pytest.raises(OSError, match="No space left on device"):
                checkpoint.save({"step": 2, "text": "x" * 100_000})
            assert folder.checkpoint.load().state == {"step": 1}
            (mount / "filler").write_bytes(b"x" * 8192)
            folder.finish(result())
    finally:
        subprocess.run(["umount", mount], check=True)


@pytest.mark.parametrize(
    ("kept", "runs"),
    [
        ({}, 7),
        ({"benchmarks": ["split-mnist"]}, 6),
        ({"methods": ["sgd"], "protocols": ["matched"]}, 3),
        ({"protocols": ["printed"]}, 1),
    ],
)
def test_listing_with_filters_in_a_stable_order(store, kept, runs):
    store.take([result(seed=seed, method=method) for seed in (2, 0, 1) for method in ("sgd", "fopng")])
    store.take([result(benchmark="rotated-mnist", protocol="printed", validation=True)])
    found = store.results(selection(**kept))
    order = [(there.config.benchmark, there.config.method, there.config.seed) for there in found]
    assert order == sorted(order)
    assert len(order) == runs


def test_listing_passes_over_damage_only_when_told_to(store):
    finish(store, result())
    (finish(store, result(seed=1)).path / "result.json").write_text("{")
    with pytest.raises(DamagedFileError):
        store.results()
    damaged = []
    assert len(store.results(damaged=damaged.append)) == 1
    assert len(damaged) == 1
    with pytest.raises(ValueError, match="Expected a folder of runs or a file of results, got"):
        load_results([store.root / "nowhere"])


def test_runs_and_bundles_are_each_there_once_with_the_experiments_of_both(store, tmp_path):
    runs = [result(seed=0).named("sweep/b"), result(seed=1)]
    [path] = write_bundles(tmp_path / "bundles", [result(seed=0).named("sweep/a")])
    assert store.take(runs) == 2
    both = [result(seed=0).named("sweep/a", "sweep/b"), result(seed=1)]
    assert load_results([store.root, tmp_path / "bundles", path]) == both
    assert store.take(load_results([path])) == 0
    assert store.results() == both


def test_each_file_is_read_once(store, tmp_path, parsed):
    runs = [result(seed=seed) for seed in range(3)]
    store.take(runs)
    [path] = write_bundles(tmp_path / "runs", [result(seed=3)])
    joint = result(method="joint")
    store.take([joint])
    parsed.clear()
    assert joint_runs(store, runs) == [joint]
    assert joint_runs(store, [*runs, joint]) == []
    assert parsed == [joint.config.key]
    assert len(load_results([tmp_path, store.root, path])) == 5
    assert sorted(parsed[1:]) == sorted(run.config.key for run in (*runs, joint, result(seed=3)))


@given(st.text(min_size=1))
def test_no_name_leads_out_of_its_folder(name):
    quoted = folder_name(name)
    assert quoted not in (".", "..")
    assert not {"/", "\x00"} & set(quoted)
    assert len(quoted) <= 100


@pytest.mark.parametrize("name", ["../../etc", "..", "<script>", 'a"b', "é" * 300, "\ud800", ""])
def test_hostile_names_are_stored_and_found(store, name):
    finish(store, result(benchmark=name, method=name))
    assert [there.config.method for there in store.results()] == [name]
    assert all(path.is_relative_to(store.root) for path in store.root.rglob("*"))
