import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import tiny
import web
from fopng import __version__
from fopng.cli import main
from fopng.lab.data.catalog import DATASETS, Source
from fopng.lab.data.errors import DatasetMissingError
from fopng.lab.schedule.machine import cores, threads_for

MADE = tiny.arrays()
FILES = tiny.zipped(tiny.idx_files(MADE))


@pytest.fixture
def fopng(empty_machine, monkeypatch, command_line):
    """Run the command line here; returns exit code, stdout and stderr."""
    monkeypatch.setenv("COLUMNS", "80")
    return command_line


@pytest.fixture
def tiny_in_catalog(monkeypatch):
    with web.serve(FILES) as (site, address):
        source = Source(address, tuple(FILES))
        monkeypatch.setitem(DATASETS, "tiny", tiny.dataset(MADE, sources=(source,)))
        site.address = address
        yield site


class TestData:
    def test_list_says_where_and_what_to_do(self, fopng):
        code, out, _ = fopng("data", "list")
        assert code == 0
        assert "not here; fopng data fetch mnist" in " ".join(out.split())
        assert "in an installed package" in " ".join(out.split())
        assert max(map(len, out.splitlines())) <= 80

    def test_list_as_json(self, fopng):
        code, out, _ = fopng("data", "list", "--json")
        assert code == 0
        entries = {entry["name"]: entry for entry in json.loads(out)}
        assert entries.keys() == DATASETS.keys()
        assert entries["cifar100"]["state"] == "missing"
        assert entries["cifar100"]["image"] == [3, 32, 32]

    def test_fetch_then_path_verify_and_list(self, fopng, tiny_in_catalog, tmp_path):
        code, out, err = fopng("data", "fetch", "tiny")
        assert code == 0
        assert tiny_in_catalog.address in out
        assert "tiny: train-images-idx3-ubyte.gz" in err
        code, out, _ = fopng("data", "path", "tiny")
        assert out.strip() == str(tmp_path / "cache" / "arrays" / "tiny")
        code, out, _ = fopng("data", "verify", "tiny")
        assert (code, "right" in out) == (0, True)
        assert json.loads(fopng("data", "fetch", "tiny", "--json")[1])[0]["source"] == "already here"
        assert json.loads(fopng("data", "path", "tiny", "--json")[1])["name"] == "tiny"
        entries = json.loads(fopng("data", "list", "--json")[1])
        assert next(entry for entry in entries if entry["name"] == "tiny")["state"] == "decoded"

    def test_fetch_again_and_from_ones_own_mirror(self, fopng, tiny_in_catalog, monkeypatch):
        with web.serve(FILES) as (_, own):
            assert own in fopng("data", "fetch", "tiny", "--mirror", own)[1]
            assert "already here" in fopng("data", "fetch", "tiny")[1]
            assert own in fopng("data", "fetch", "tiny", "--mirror", own, "--again")[1]

    def test_a_terminal_sees_bars(self, fopng, tiny_in_catalog, monkeypatch):
        monkeypatch.setenv("FORCE_COLOR", "1")
        code, _, err = fopng("data", "fetch", "tiny")
        assert code == 0
        assert "train-images-idx3-ubyte.gz" in err
        assert "\N{BOX DRAWINGS HEAVY HORIZONTAL}" in err

    def test_a_fetch_that_fails_lists_the_sources(self, fopng, tiny_in_catalog):
        tiny_in_catalog.status = 503
        code, out, err = fopng("data", "fetch", "tiny")
        assert (code, out) == (1, "")
        assert "503 Server Error" in err
        assert "train-images-idx3-ubyte" in err

    def test_verify_finds_damage(self, fopng, tiny_in_catalog, tmp_path):
        fopng("data", "fetch", "tiny")
        file = tmp_path / "cache" / "arrays" / "tiny" / "test-images.npy"
        file.write_bytes(tiny.flipped(file.read_bytes(), 200, 1))
        code, out, err = fopng("data", "verify")
        assert code == 1
        assert "wrong" in out
        assert "--again" in err
        code, out, _ = fopng("data", "verify", "--json")
        assert code == 1
        assert json.loads(out)[0]["problem"]

    def test_verify_and_path_of_what_is_not_here(self, fopng):
        assert fopng("data", "verify", "mnist")[0] == 1
        assert fopng("data", "verify")[0] == 0
        code, _, err = fopng("data", "path", "mnist")
        assert code == 1
        assert err.count("\n") == 1

    def test_path_of_the_cache(self, fopng, tmp_path):
        assert fopng("data", "path")[1].strip() == str(tmp_path / "cache")

    def test_a_data_folder(self, fopng, tiny_in_catalog, tmp_path):
        tiny.write(tmp_path / "own", FILES)
        assert fopng("data", "path", "tiny", "--data-dir", str(tmp_path / "own"))[1].strip() == str(tmp_path / "own")
        assert "found on this machine" in fopng("data", "fetch", "tiny", "--data-dir", str(tmp_path / "own"))[1]


class TestBenchmarks:
    def test_all(self, fopng):
        code, out, _ = fopng("benchmarks")
        assert code == 0
        assert "split-cifar100" in out
        assert max(map(len, out.splitlines())) <= 80
        entries = json.loads(fopng("benchmarks", "--json")[1])
        assert sum(entry["in_paper"] for entry in entries) == 5
        assert {entry["name"]: entry["tasks"] for entry in entries}["split-cifar100"] == 10

    def test_one(self, fopng):
        assert "angles" in fopng("benchmarks", "rotated-mnist")[1]
        settings = json.loads(fopng("benchmarks", "split-mnist", "--json")[1])["settings"]
        assert settings["scenario"] == "domain"

    def test_ones_own_has_no_settings(self, fopng):
        code, _, err = fopng("benchmarks", "mine:stream")
        assert code == 2
        assert "function's own" in err


class TestErrors:
    @pytest.mark.parametrize(
        "arguments",
        [
            ("nothing",),
            ("data", "nothing"),
            ("data", "fetch"),
            ("data", "fetch", "emnist"),
            ("data", "list", "--nothing"),
            ("benchmarks", "split-everything"),
        ],
    )
    def test_usage(self, fopng, arguments):
        code, out, err = fopng(*arguments)
        assert (code, out) == (2, "")
        assert 1 <= err.count("\n") <= 2
        assert err.startswith("fopng: ")

    @pytest.mark.parametrize("group", [(), ("data",)])
    def test_without_a_command_there_is_help(self, fopng, group):
        code, out, err = fopng(*group)
        assert (code, out) == (2, "")
        assert err.startswith("Usage: fopng")
        assert "Commands:" in err

    def test_an_error_nobody_expected_is_no_traceback_either(self, fopng, monkeypatch):
        def broken(*_):
            raise ZeroDivisionError("by zero")

        monkeypatch.setattr("fopng.cli.data.status", broken)
        code, _, err = fopng("data", "list")
        assert code == 1
        first, second = err.splitlines()
        assert first == "fopng: ZeroDivisionError: by zero"
        kept = Path(re.fullmatch(r"This may be a bug. FOPNG_DEBUG=1 shows the traceback, kept in (.*)", second)[1])
        assert "in broken" in kept.read_text()
        kept.unlink()

    @pytest.mark.parametrize(
        ("error", "code", "words"),
        [
            (OSError(28, "No space left on device"), 1, "No space left on device"),
            (MemoryError("90 GB"), 1, "Not enough memory: 90 GB"),
            (DatasetMissingError("not here"), 1, "fopng: not here\n"),
            (ValueError("Expected this, got that."), 2, "fopng: Expected this, got that.\n"),
        ],
    )
    def test_the_exit_code_says_whose_the_error_is(self, fopng, monkeypatch, error, code, words):
        def raises(*_):
            raise error

        monkeypatch.setattr("fopng.cli.data.status", raises)
        found, _, err = fopng("data", "list")
        assert (found, words in err) == (code, True), err

    def test_the_traceback_is_there_for_who_asks(self, fopng, monkeypatch):
        monkeypatch.setenv("FOPNG_DEBUG", "1")
        monkeypatch.setattr(sys, "argv", ["fopng", "data", "path", "emnist"])
        with pytest.raises(ValueError, match="emnist"):
            main()

    def test_interrupted(self, fopng, monkeypatch):
        def interrupt(*_):
            raise KeyboardInterrupt

        monkeypatch.setattr("fopng.cli.data.status", interrupt)
        assert fopng("data", "list")[0] == 130


@pytest.mark.parametrize(
    "module", ["fopng", "fopng.lab.data", "fopng.lab.benchmarks", "fopng.lab.benchmarks.models", "fopng.cli"]
)
def test_imports_are_cheap(module):
    code = f"import sys, {module}; print([m for m in ('mlxtend', 'sklearn', 'PIL', 'scipy') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_version(fopng):
    code, out, err = fopng("--version")
    assert (code, out.strip(), err) == (0, f"fopng {__version__}", "")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["split-digits", "ogd", "--lr", "0.1"], "A setting is given as --set lr=VALUE."),
        (["split-digits", "--methods", "ogd"], "A method is given without an option: fopng run BENCHMARK METHOD."),
        (["split-digits", "ogd", "--set", "learning_rate=0.1"], "Did you mean 'lr'?"),
        (["split-digits", "OGD"], "Did you mean 'ogd'?"),
        (["ogd", "split-digits"], "which is a benchmark. Name the benchmark first"),
    ],
)
def test_near_misses_are_told_what_was_meant(fopng, arguments, message):
    code, _, err = fopng("run", *arguments)
    assert (code, message in err) == (2, True), err


def test_a_command_without_settings_says_nothing_of_them(fopng):
    code, _, err = fopng("methods", "--lr", "0.1")
    assert code == 2
    assert "--set" not in err


@pytest.mark.parametrize(("told", "expected"), [("3", 3), ("3,2", 3), ("", cores()), ("0", cores()), ("x", cores())])
def test_threads_follow_the_environment(told, expected, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", told)
    assert (threads_for("convnet"), threads_for("mlp")) == (expected, 1)
