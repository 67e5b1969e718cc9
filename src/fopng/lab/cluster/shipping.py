"""Code and data for the workers: sent by the driver, unpacked once a machine."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import tempfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, final

import fopng
from fopng.lab.data.cache import cache_folder, locked, open_arrays, save_arrays
from fopng.lab.data.catalog import DATASETS, KnownDataset
from fopng.lab.data.formats import image_folder, lend_folder
from fopng.lab.data.library import load_arrays
from fopng.lab.runs.config import RunConfig

Handle = Any
"""Stands for something large that is fetched only where it is needed."""

_NOT_CODE = ("**/.git", "**/.venv", "**/__pycache__", "**/*.npy", "**/*.safetensors", "**/*.pt", "**/*.gz")


@final
@dataclass(frozen=True)
class Folder:
    """A user's folder of images, on its way."""

    name: str
    digest: str
    files: Handle


@final
@dataclass(frozen=True)
class Goods:
    """The data that runs need: arrays of known datasets, and folders of images by the paths that users wrote."""

    arrays: Mapping[str, Handle] = field(default_factory=dict)
    folders: Mapping[str, Folder] = field(default_factory=dict)


def code_for_workers(configs: Iterable[RunConfig], out: Path) -> dict[str, object]:
    """What Ray is to bring to every worker: this package, and the current folder where users' own functions live in it.

    Args:
        configs: the runs.
        out: the folder of the runs, which is no code.
    """
    code: dict[str, object] = {"py_modules": [str(Path(fopng.__file__).parent)]}
    named = {name.partition(":")[0] for config in configs for name in (config.benchmark, config.model) if ":" in name}
    if any(_is_here(module) for module in named):
        here = Path.cwd()
        runs = ["/" + out.resolve().relative_to(here).as_posix()] if out.resolve().is_relative_to(here) else []
        code |= {"working_dir": str(here), "excludes": [*_NOT_CODE, *runs]}
    return code


def _is_here(module: str) -> bool:
    """Whether a module is found in the current folder."""
    top = module.partition(".")[0]
    spec = importlib.util.find_spec(top)
    places = [] if spec is None else [spec.origin or "", *(spec.submodule_search_locations or ())]
    found = [Path(place).resolve() for place in places if place]
    return any(path.is_relative_to(Path.cwd()) and "site-packages" not in path.parts for path in found)


def collect_goods(configs: Iterable[RunConfig], data_dir: Path | None, put: Callable[[object], Handle]) -> Goods:
    """Take up the data that these runs need; `put` gives the handle of something large."""
    arrays: dict[str, Handle] = {}
    folders: dict[str, Folder] = {}
    for name in sorted({config.dataset for config in configs}):
        if isinstance(known := DATASETS.get(name), KnownDataset):
            arrays[name] = put(load_arrays(known, data_dir))
        elif (folder := image_folder(name)) is not None:
            files = {
                path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()
            }
            folders[name] = Folder(folder.name, _digest(files), put(files))
    return Goods(arrays, folders)


def settle(goods: Goods, get: Callable[[Handle], Any]) -> None:
    """Put the data where runs on this machine find them, unless an earlier worker did; `get` fetches what a handle stands for."""
    _find_a_cache()
    for name, handle in goods.arrays.items():
        known = DATASETS[name]
        assert isinstance(known, KnownDataset)
        contents = known.contents
        if open_arrays(name, contents) is None:
            with locked(name):
                if open_arrays(name, contents) is None:
                    save_arrays(name, get(handle))
    for reference, folder in goods.folders.items():
        if image_folder(reference) is None:
            lend_folder(reference, _unpacked(folder, get))


def _unpacked(folder: Folder, get: Callable[[Handle], Any]) -> Path:
    target = cache_folder() / "folders" / folder.digest
    with locked(folder.digest):
        if not target.is_dir():
            target.parent.mkdir(parents=True, exist_ok=True)
            scratch = Path(tempfile.mkdtemp(dir=target.parent))
            for name, content in get(folder.files).items():
                path = scratch / folder.name / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)
            scratch.rename(target)
    return target / folder.name


def _find_a_cache() -> None:
    """Use the machine's own cache; where it cannot be written, a temporary one."""
    try:
        cache_folder().mkdir(parents=True, exist_ok=True)
        if os.access(cache_folder(), os.W_OK):
            return
    except OSError:
        pass
    user = os.getuid() if hasattr(os, "getuid") else "user"
    os.environ["FOPNG_CACHE"] = str(Path(tempfile.gettempdir()) / f"fopng-cache-{user}")


def _digest(files: Mapping[str, bytes]) -> str:
    whole = hashlib.sha256()
    for name in sorted(files):
        whole.update(f"{name}\n{len(files[name])}\n".encode())
        whole.update(files[name])
    return whole.hexdigest()[:32]
