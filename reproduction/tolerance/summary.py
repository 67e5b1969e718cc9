"""The tables of asked and delivered, in Markdown, from records."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import final

from fopng.lab.runs.scores import Estimate
from reproduction import RESULTS
from reproduction.tables import table
from reproduction.tolerance.contenders import (
    BEND,
    CONTENDERS,
    DEFAULT,
    PLAIN,
    REHEARSAL,
    REPLAY,
    STRENGTHS,
    TOLERANCES,
)
from reproduction.tolerance.records import Record, load_records
from reproduction.tolerance.streams import STREAMS, TextStream

FOLDER = RESULTS / "tolerance"

Number = Callable[[Record], float]

ASKED = tuple(f"tolerance-{asked:g}" for asked in TOLERANCES)
FIXED = tuple(f"strength-{value:g}" for value in STRENGTHS)
DEFAULT_NAME = f"tolerance-{DEFAULT:g}"


def tolerance(results: object, what: str) -> str:
    """One of the tables: `delivered`, `reached`, `accuracy`, `texts`, `bytes` or `meaning`."""
    return SUMMARIES[what](Grid(load_records(FOLDER)))


@final
class Grid:
    """Records by stream and contender; those that diverged are left out, and counted."""

    def __init__(self, records: Iterable[Record]) -> None:
        self._found: dict[tuple[str, str], list[Record]] = {}
        for record in records:
            self._found.setdefault((record.cell.stream, record.cell.contender), []).append(record)

    def streams(self) -> list[str]:
        """Those that there are records of."""
        return [name for name in STREAMS if any(stream == name for stream, _ in self._found)]

    def of(self, stream: str, contender: str) -> list[Record]:
        """The records of a contender, seed by seed."""
        return self._found.get((stream, contender), [])

    def estimate(self, stream: str, contender: str, number: Number) -> Estimate:
        """The mean of a number over seeds."""
        records = self.of(stream, contender)
        return Estimate.of([None if record.measured.diverged else number(record) for record in records])

    def best_fixed(self, stream: str) -> str | None:
        """The fixed strength that ends best."""
        sign = -1 if is_text(stream) else 1
        scores = {name: self.estimate(stream, name, final_of) for name in FIXED}
        whole = {name: sign * found.mean for name, found in scores.items() if found.count and not found.missing}
        return max(whole, key=lambda name: whole[name]) if whole else None


def is_text(stream: str) -> bool:
    """Whether scores are losses, not accuracies."""
    return isinstance(STREAMS[stream], TextStream)


def lost_of(record: Record) -> float:
    """The mean over old tasks, in the end."""
    return sum(record.lost) / len(record.lost)


def worst_of(record: Record) -> float:
    """What the old task that lost most has lost."""
    return max(record.lost)


def final_of(record: Record) -> float:
    """The mean score in the end."""
    return record.final


def learnt_of(record: Record) -> float:
    """The mean score of later tasks just learnt."""
    return record.learnt


def delivered(grid: Grid) -> str:
    """What old tasks really lost, mean and worst, for each tolerance, beside plain training."""
    rows = [
        [STREAMS[stream].title, *(_mean_and_worst(grid, stream, name) for name in (*ASKED, PLAIN))]
        for stream in grid.streams()
    ]
    return table(["really lost (worst task)", *(CONTENDERS[name].title for name in (*ASKED, PLAIN))], rows)


def reached(grid: Grid) -> str:
    """What later tasks reached when they had just been learnt."""
    names = (*ASKED, PLAIN)
    rows = [
        [STREAMS[stream].title, *(_score(grid, stream, name, learnt_of) for name in names)] for stream in grid.streams()
    ]
    return table(["just learnt", *(CONTENDERS[name].title for name in names)], rows)


def accuracy(grid: Grid) -> str:
    """The mean score over all tasks in the end, of every contender, the best fixed strength by name."""
    names = (PLAIN, *ASKED, BEND, REHEARSAL, REPLAY)
    rows = []
    for stream in grid.streams():
        best = grid.best_fixed(stream)
        fixed = "" if best is None else f"{_score(grid, stream, best, final_of)} ({best.partition('-')[2]})"
        cells = [_score(grid, stream, name, final_of) for name in names]
        rows.append([STREAMS[stream].title, cells[0], fixed, *cells[1:]])
    titles = [CONTENDERS[name].title for name in names]
    return table(["in the end", titles[0], "best fixed strength", *titles[1:]], rows)


def short(grid: Grid) -> str:
    """What the default really loses, and where it ends, beside plain training and the best fixed strength."""
    rows = []
    for stream in grid.streams():
        best = grid.best_fixed(stream)
        names = (PLAIN, *([] if best is None else [best]), DEFAULT_NAME)
        scores = (_score(grid, stream, name, final_of) for name in names)
        rows.append([STREAMS[stream].title, *scores, _plain(grid.estimate(stream, DEFAULT_NAME, lost_of))])
    heads = ["", "plain training", "best fixed strength", "`fopng-k`, asked 0.1", "really lost"]
    return table(heads, rows)


def texts(grid: Grid) -> str:
    """Python to C: losses, and the shares of what is forgotten and learnt without anything that holds it back."""
    rows = []
    for name, contender in CONTENDERS.items():
        pairs = _beside_plain(grid, name)
        if pairs:
            numbers = [_plain(grid.estimate("texts", name, number)) for number in (_on_python, _on_c, _lost_by_python)]
            kept = Estimate.of([1 - _forgotten(own) / _forgotten(plain) for own, plain in pairs])
            given = Estimate.of([1 - _gained(own) / _gained(plain) for own, plain in pairs])
            rows.append([contender.title, *numbers, *(f"{100 * share.mean:.0f} %" for share in (kept, given))])
    heads = ["after C", "loss on Python", "loss on C", "lost, mean KL", "of what is forgotten, kept"]
    return table([*heads, "of what is learnt, given up"], rows)


def kept(grid: Grid) -> str:
    """What is kept in the end, and what replay makes of as many bytes."""
    rows = []
    for stream in grid.streams():
        records = grid.of(stream, DEFAULT_NAME)
        if records:
            size = f"{records[0].measured.kept_bytes / 2**20:.1f} MiB"
            samples = [f"{record.settings['capacity']:,}" for record in grid.of(stream, REPLAY)[:1]] or [""]
            scores = [_score(grid, stream, name, final_of) for name in (DEFAULT_NAME, REPLAY)]
            rows.append([STREAMS[stream].title, size, scores[0], *samples, scores[1]])
    return table(["", "kept", CONTENDERS[DEFAULT_NAME].title, "samples that fit", "replay"], rows)


def meaning(grid: Grid) -> str:
    """What a loss in nats is in points of accuracy, or in the logarithm of the perplexity: means over old tasks in the end."""
    rows = []
    for stream in grid.streams():
        cells = []
        for name in (DEFAULT_NAME, PLAIN):
            lost, fell = (grid.estimate(stream, name, number) for number in (lost_of, _fallen))
            scale, digits, unit = (1.0, 3, " nats") if is_text(stream) else (100.0, 1, " points")
            cells += [_plain(lost), f"{scale * fell.mean:.{digits}f}{unit}" if fell.count else ""]
        rows.append([STREAMS[stream].title, *cells])
    titles = [CONTENDERS[name].title for name in (DEFAULT_NAME, PLAIN)]
    return table(["", *(words for title in titles for words in (f"{title}: lost", "worse by"))], rows)


SUMMARIES: Mapping[str, Callable[[Grid], str]] = {
    "delivered": delivered,
    "reached": reached,
    "accuracy": accuracy,
    "short": short,
    "texts": texts,
    "bytes": kept,
    "meaning": meaning,
}
"""By the word that a page gives."""


def _mean_and_worst(grid: Grid, stream: str, name: str) -> str:
    found = grid.estimate(stream, name, lost_of)
    if not found.count:
        return _diverged(found)
    return f"{found.mean:.3f} ({grid.estimate(stream, name, worst_of).mean:.3f}){_diverged(found)}"


def _score(grid: Grid, stream: str, name: str, number: Number) -> str:
    found = grid.estimate(stream, name, number)
    if not found.count:
        return _diverged(found)
    scale, digits = (1.0, 3) if is_text(stream) else (100.0, 1)
    margin = f" ± {scale * found.half_width(0.95):.{digits}f}" if found.count > 1 else ""
    return f"{scale * found.mean:.{digits}f}{margin}{_diverged(found)}"


def _diverged(found: Estimate) -> str:
    return f" ({found.missing} diverged)" if found.missing else ""


def _plain(found: Estimate) -> str:
    return f"{found.mean:.3f}" if found.count else ""


def _beside_plain(grid: Grid, name: str) -> Sequence[tuple[Record, Record]]:
    """A contender's runs, each with plain training's of the same seed."""
    plain = {record.cell.seed: record for record in grid.of("texts", PLAIN)}
    runs = (record for record in grid.of("texts", name) if not record.measured.diverged)
    return [(record, plain[record.cell.seed]) for record in runs if record.cell.seed in plain]


def _number(value: float | None) -> float:
    assert value is not None
    return value


def _fallen(record: Record) -> float:
    """By how much old tasks are worse in the end than just learnt, the mean."""
    score, sign = record.measured.score, -1 if is_text(record.cell.stream) else 1
    pairs = [(_number(score[task][task]), _number(score[-1][task])) for task in range(len(score) - 1)]
    return sign * sum(before - now for before, now in pairs) / len(pairs)


def _on_python(record: Record) -> float:
    return _number(record.measured.score[1][0])


def _on_c(record: Record) -> float:
    return _number(record.measured.score[1][1])


def _lost_by_python(record: Record) -> float:
    return _number(record.measured.lost[1][0])


def _forgotten(record: Record) -> float:
    return _on_python(record) - _number(record.measured.score[0][0])


def _gained(record: Record) -> float:
    return _number(record.measured.before[1]) - _on_c(record)
