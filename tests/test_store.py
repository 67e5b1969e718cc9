"""Runs on disk: claimed by one, finished once, found again."""

import json
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from faults import LIMIT_FILE_SIZE, rest, start
from fopng.lab.runs.config import RunConfig
from fopng.lab.runs.result import DamagedFileError
from fopng.lab.runs.store import Store, folder_name, selection
from fopng.lab.storage.locks import HeldError
from sample_runs import config, result


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "runs")


def finish(store, there):
    folder = store.folder(there.config)
    with folder.claim() as already:
        assert already is None
        folder.finish(there)
    return folder


def test_where_a_run_lives(store):
    assert store.folder(config()).path == store.root / "split-mnist" / "fopng" / config().key


def test_a_run_from_beginning_to_end(store):
    folder = store.folder(config())
    assert folder.result() is None
    with folder.claim() as already:
        assert already is None
        assert RunConfig.from_dict(json.loads((folder.path / "config.json").read_text())) == config()
        folder.checkpoint.save({"step": 1})
        folder.finish(result())
    assert folder.result() == result()
    assert {path.name for path in folder.path.iterdir()} == {"config.json", "result.json"}


def test_a_finished_run_is_given_back_and_not_run_again(store):
    folder = finish(store, result())
    with folder.claim() as already:
        assert already == result()


def test_unless_asked(store):
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
    folder = store.folder(config())
    with folder.claim(), pytest.raises(HeldError), store.folder(config()).claim():
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


def test_rubbish_of_killed_writers_is_removed(store):
    folder = store.folder(config())
    folder.path.mkdir(parents=True)
    (folder.path / ".result.json.0a1b2c3d.partial").write_text("half")
    with folder.claim():
        assert not list(folder.path.glob("*.partial"))


def test_a_damaged_configuration_is_written_anew(store):
    folder = store.folder(config())
    with folder.claim():
        pass
    (folder.path / "config.json").write_text("{")
    with folder.claim():
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
    script = (
        LIMIT_FILE_SIZE
        + """
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
    )
    output = rest(start(script, str(store.root)))
    assert "result.json, got: File too large" in output
    assert folder.result() is None
    with folder.claim() as already:
        assert already is None
        assert folder.checkpoint.load().state == {"step": 1}


def test_a_real_full_disk(tmp_path):
    mount = tmp_path / "small"
    mount.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", mount], capture_output=True, check=False
    )
    if mounted.returncode:
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


def test_listing_with_filters_in_a_stable_order(store):
    for seed in (2, 0, 1):
        for method in ("sgd", "fopng"):
            finish(store, result(seed=seed, method=method))
    finish(store, result(benchmark="rotated-mnist", protocol="printed", validation=True))
    found = [(there.config.method, there.config.seed) for there in store.results(selection(benchmarks=["split-mnist"]))]
    assert found == [("fopng", 0), ("fopng", 1), ("fopng", 2), ("sgd", 0), ("sgd", 1), ("sgd", 2)]
    assert len(store.results(selection(methods=["sgd"], seeds=[0, 1]))) == 2
    assert len(store.results(selection(protocols=["printed"]))) == 1
    assert len(store.results(selection(validation=False))) == 6
    assert len(store.results()) == 7


def test_listing_passes_over_damage_only_when_told_to(store):
    finish(store, result())
    (finish(store, result(seed=1)).path / "result.json").write_text("{")
    with pytest.raises(DamagedFileError):
        store.results()
    damaged = []
    assert len(store.results(damaged=damaged.append)) == 1
    assert len(damaged) == 1


def test_listing_a_folder_that_is_not_there(store):
    with pytest.raises(ValueError, match="Expected a folder of runs or a file of results, got"):
        store.results()


@given(st.text(min_size=1))
def test_no_name_leads_out_of_its_folder(name):
    quoted = folder_name(name)
    assert quoted not in (".", "..")
    assert "/" not in quoted
    assert "\x00" not in quoted
    assert len(quoted) <= 100


@pytest.mark.parametrize("name", ["../../etc", "..", "<script>", 'a"b', "é" * 300, "\ud800", ""])
def test_hostile_names_are_stored_and_found(store, name):
    finish(store, result(benchmark=name, method=name))
    assert [there.config.method for there in store.results()] == [name]
    assert all(path.is_relative_to(store.root) for path in store.root.rglob("*"))
