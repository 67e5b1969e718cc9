"""Fixtures that keep every test away from the user's own folders."""

from pathlib import Path

import pytest
import torch

import fopng.lab.data.library


@pytest.fixture(scope="session", autouse=True)
def _one_thread():
    torch.set_num_threads(1)


@pytest.fixture
def empty_machine(tmp_path, monkeypatch):
    """A machine without datasets: its own cache, home and current folder."""
    for name in ("home", "work"):
        (tmp_path / name).mkdir()
    monkeypatch.setenv("FOPNG_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("FOPNG_DATA", raising=False)
    monkeypatch.delenv("FOPNG_DEBUG", raising=False)
    monkeypatch.setattr(fopng.lab.data.library, "SYSTEM_FOLDER", tmp_path / "system")
    monkeypatch.chdir(tmp_path / "work")
    return tmp_path


@pytest.fixture(scope="session")
def session_cache(tmp_path_factory, worker_id):
    """One cache for all tests of a session; parallel workers share it, as processes of a user do."""
    base = tmp_path_factory.getbasetemp()
    return (base if worker_id == "master" else base.parent) / "fopng-cache"


@pytest.fixture
def shared_cache(session_cache, monkeypatch) -> Path:
    """The session's cache, in which the embedded datasets are decoded once."""
    monkeypatch.setenv("FOPNG_CACHE", str(session_cache))
    return session_cache
