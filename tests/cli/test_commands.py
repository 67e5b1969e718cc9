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
def fopng(on_an_empty_machine):
    """Run a command line where no dataset was ever fetched."""
    return on_an_empty_machine


@pytest.fixture
def tiny_in_catalog(monkeypatch):
    with web.serve(FILES) as (site, address):
        source = Source(address, tuple(FILES))
        monkeypatch.setitem(DATASETS, "tiny", tiny.dataset(MADE, sources=(source,)))
        site.address = address
        yield site


class TestData:
    def test_list_says_where_and_what_to_do(self, fopng):
        out = fopng("data list").out
        assert "not here; fopng data fetch mnist" in " ".join(out.split())
        assert "in an installed package" in " ".join(out.split())
        assert max(map(len, out.splitlines())) <= 80

    def test_list_as_json(self, fopng):
        entries = {entry["name"]: entry for entry in fopng("data list --json").json}
        assert entries.keys() == DATASETS.keys()
        assert (entries["cifar100"]["state"], entries["cifar100"]["image"]) == ("missing", [3, 32, 32])

    def test_fetch_then_path_verify_and_list(self, fopng, tiny_in_catalog, tmp_path):
        said = fopng("data fetch tiny")
        assert tiny_in_catalog.address in said.out
        assert "tiny: train-images-idx3-ubyte.gz" in said.err
        assert fopng("data path tiny").out.strip() == str(tmp_path / "cache" / "arrays" / "tiny")
        assert "right" in fopng("data verify tiny").out
        assert fopng("data fetch tiny --json").json[0]["source"] == "already here"
        assert fopng("data path tiny --json").json["name"] == "tiny"
        [entry] = [entry for entry in fopng("data list --json").json if entry["name"] == "tiny"]
        assert entry["state"] == "decoded"

    def test_fetch_again_and_from_ones_own_mirror(self, fopng, tiny_in_catalog):
        with web.serve(FILES) as (_, own):
            assert own in fopng(f"data fetch tiny --mirror {own}").out
            assert "already here" in fopng("data fetch tiny").out
            assert own in fopng(f"data fetch tiny --mirror {own} --again").out

    def test_a_terminal_sees_bars(self, fopng, tiny_in_catalog, monkeypatch):
        monkeypatch.setenv("FORCE_COLOR", "1")
        err = fopng("data fetch tiny").err
        assert "train-images-idx3-ubyte.gz" in err
        assert "\N{BOX DRAWINGS HEAVY HORIZONTAL}" in err

    def test_a_fetch_that_fails_lists_the_sources(self, fopng, tiny_in_catalog):
        tiny_in_catalog.status = 503
        said = fopng("data fetch tiny", code=1)
        assert said.out == ""
        assert "503 Server Error" in said.err
        assert "train-images-idx3-ubyte" in said.err

    def test_verify_finds_damage(self, fopng, tiny_in_catalog, tmp_path):
        fopng("data fetch tiny")
        file = tmp_path / "cache" / "arrays" / "tiny" / "test-images.npy"
        file.write_bytes(tiny.flipped(file.read_bytes(), 200, 1))
        said = fopng("data verify", code=1)
        assert "wrong" in said.out
        assert "--again" in said.err
        assert fopng("data verify --json", code=1).json[0]["problem"]

    def test_verify_and_path_of_what_is_not_here(self, fopng):
        fopng("data verify mnist", code=1)
        fopng("data verify")
        assert fopng("data path mnist", code=1).err.count("\n") == 1

    def test_path_of_the_cache(self, fopng, tmp_path):
        assert fopng("data path").out.strip() == str(tmp_path / "cache")

    def test_a_data_folder(self, fopng, tiny_in_catalog, tmp_path):
        own = tmp_path / "own"
        tiny.write(own, FILES)
        assert fopng(f"data path tiny --data-dir {own}").out.strip() == str(own)
        assert "found on this machine" in fopng(f"data fetch tiny --data-dir {own}").out


class TestBenchmarks:
    def test_all(self, fopng):
        out = fopng("benchmarks").out
        assert "split-cifar100" in out
        assert max(map(len, out.splitlines())) <= 80
        entries = fopng("benchmarks --json").json
        assert sum(entry["in_paper"] for entry in entries) == 5
        assert {entry["name"]: entry["tasks"] for entry in entries}["split-cifar100"] == 10

    def test_one(self, fopng):
        assert "angles" in fopng("benchmarks rotated-mnist").out
        assert fopng("benchmarks split-mnist --json").json["settings"]["scenario"] == "domain"

    def test_ones_own_has_no_settings(self, fopng):
        assert "function's own" in fopng("benchmarks mine:stream", code=2).err


def raises(error):
    def raising(*_):
        raise error

    return raising


class TestErrors:
    @pytest.mark.parametrize(
        "line",
        [
            *("nothing", "data nothing", "data fetch", "data fetch emnist", "data list --nothing"),
            "benchmarks split-everything",
        ],
    )
    def test_usage(self, fopng, line):
        said = fopng(line, code=2)
        assert said.out == ""
        assert 1 <= said.err.count("\n") <= 2
        assert said.err.startswith("fopng: ")

    @pytest.mark.parametrize("group", ["", "data"])
    def test_without_a_command_there_is_help(self, fopng, group):
        said = fopng(group, code=2)
        assert said.out == ""
        assert said.err.startswith("Usage: fopng")
        assert "Commands:" in said.err

    def test_an_error_nobody_expected_is_no_traceback_either(self, fopng, monkeypatch):
        monkeypatch.setattr("fopng.cli.data.status", raises(ZeroDivisionError("by zero")))
        first, second = fopng("data list", code=1).err.splitlines()
        assert first == "fopng: ZeroDivisionError: by zero"
        kept = Path(re.fullmatch(r"This may be a bug. FOPNG_DEBUG=1 shows the traceback, kept in (.*)", second)[1])
        assert "in raising" in kept.read_text()
        kept.unlink()

    @pytest.mark.parametrize(
        ("error", "code", "words"),
        [
            (OSError(28, "No space left on device"), 1, "No space left on device"),
            (MemoryError("90 GB"), 1, "Not enough memory: 90 GB"),
            (DatasetMissingError("not here"), 1, "fopng: not here\n"),
            (ValueError("Expected this, got that."), 2, "fopng: Expected this, got that.\n"),
            (KeyboardInterrupt(), 130, "fopng: Stopped.\n"),
        ],
    )
    def test_the_exit_code_says_whose_the_error_is(self, fopng, monkeypatch, error, code, words):
        monkeypatch.setattr("fopng.cli.data.status", raises(error))
        assert words in fopng("data list", code=code).err

    def test_the_traceback_is_there_for_who_asks(self, fopng, monkeypatch):
        monkeypatch.setenv("FOPNG_DEBUG", "1")
        monkeypatch.setattr(sys, "argv", ["fopng", "data", "path", "emnist"])
        with pytest.raises(ValueError, match="emnist"):
            main()


@pytest.mark.parametrize(
    "module", ["fopng", "fopng.lab.data", "fopng.lab.benchmarks", "fopng.lab.benchmarks.models", "fopng.cli"]
)
def test_imports_are_cheap(module):
    code = f"import sys, {module}; print([m for m in ('mlxtend', 'sklearn', 'PIL', 'scipy') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_version(fopng):
    assert fopng("--version") == (f"fopng {__version__}\n", "")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("split-digits ogd --lr 0.1", "A setting is given as --set lr=VALUE."),
        ("split-digits --methods ogd", "A method is given without an option: fopng run BENCHMARK METHOD."),
        ("split-digits ogd --set learning_rate=0.1", "Did you mean 'lr'?"),
        ("split-digits OGD", "Did you mean 'ogd'?"),
        ("ogd split-digits", "which is a benchmark. Name the benchmark first"),
    ],
)
def test_near_misses_are_told_what_was_meant(fopng, line, message):
    assert message in fopng(f"run {line}", code=2).err


def test_a_command_without_settings_says_nothing_of_them(fopng):
    assert "--set" not in fopng("methods --lr 0.1", code=2).err


@pytest.mark.parametrize(("told", "expected"), [("3", 3), ("3,2", 3), ("", cores()), ("0", cores()), ("x", cores())])
def test_threads_follow_the_environment(told, expected, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", told)
    assert (threads_for("convnet"), threads_for("mlp")) == (expected, 1)


class TestCoverage:
    def test_a_model_of_ones_own(self, fopng, tmp_path, monkeypatch):
        (tmp_path / "own.py").write_text(
            "import torch\n\n\ndef made():\n"
            "    return torch.nn.Linear(3, 2), (torch.ones(4, 3), torch.tensor([0, 1, 1, 0]))\n\n\ndef wrong():\n    return 3\n"
        )
        monkeypatch.chdir(tmp_path)
        assert "100.0% of the parameters in matrices" in fopng("coverage own:made").out
        assert fopng("coverage own:made --json").json["share"] == 1

    @pytest.mark.parametrize("asked", ["own", "own:wrong"])
    def test_what_is_no_model_is_refused(self, fopng, tmp_path, monkeypatch, asked):
        (tmp_path / "own.py").write_text("def wrong():\n    return 3\n")
        monkeypatch.chdir(tmp_path)
        assert "Expected" in fopng(f"coverage {asked}", code=2).err
