"""Which runs there are, where they lie, and what each needs before it can be done."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import final

from fopng.lab.runs.settings import unknown
from reproduction.tolerance.contenders import CONTENDERS
from reproduction.tolerance.languages import first_path
from reproduction.tolerance.portions import texts
from reproduction.tolerance.records import Cell
from reproduction.tolerance.streams import STREAMS, TextStream


@final
@dataclass(frozen=True, kw_only=True)
class Places:
    """Where runs find and leave things.

    Attributes:
        out: where results are.
        cache: where models that have learnt the first texts are.
        data_dir: where datasets, or the packed ones, are.
        device: of models and data.
    """

    out: Path
    cache: Path
    data_dir: Path | None
    device: str


def cells(streams: Collection[str], contenders: Collection[str], seeds: Iterable[int]) -> list[Cell]:
    """A run for each, and those that another one takes a number from; seed by seed, the longest streams first."""
    _check(streams, STREAMS, "a stream")
    _check(contenders, CONTENDERS, "a contender")
    needed = {CONTENDERS[name].as_many_bytes_as for name in contenders}
    names = [name for name in CONTENDERS if name in needed or name in contenders]
    order = [name for name in reversed(list(STREAMS)) if name in streams]
    return [Cell(stream=s, contender=name, seed=seed) for seed in seeds for s in order for name in names]


def ready(cell: Cell, places: Places) -> bool:
    """Whether all that a run takes from others is there."""
    return all(path.is_file() for path in _needs(cell, places))


def beginnings(wanted: Iterable[Cell], places: Places) -> list[int]:
    """The seeds whose model of the first texts has still to be trained."""
    seeds = {cell.seed: first_of(cell, places) for cell in wanted if isinstance(STREAMS[cell.stream], TextStream)}
    return [seed for seed, path in seeds.items() if not path.is_file()]


def first_of(cell: Cell, places: Places) -> Path:
    """Where the model is that has learnt the first texts."""
    stream = STREAMS[cell.stream]
    assert isinstance(stream, TextStream)
    return first_path(stream, cell.seed, texts(places.data_dir)[0], places.cache)


def filled_like(cell: Cell) -> Cell | None:
    """The run whose bytes this one fills with samples."""
    name = CONTENDERS[cell.contender].as_many_bytes_as
    return None if name is None else Cell(stream=cell.stream, contender=name, seed=cell.seed)


def _check(names: Iterable[str], known: Collection[str], what: str) -> None:
    for name in names:
        if name not in known:
            raise ValueError(unknown(what, name, known))


def _needs(cell: Cell, places: Places) -> list[Path]:
    like = filled_like(cell)
    found = [] if like is None else [like.path(places.out)]
    return [*found, first_of(cell, places)] if isinstance(STREAMS[cell.stream], TextStream) else found
