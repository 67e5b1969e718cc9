"""Runs on disk: `<root>/<benchmark>/<method>/<key>/`, each with its configuration, its log and its result."""

import contextlib
import hashlib
import urllib.parse
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import final

from fopng.lab.runs import bundle
from fopng.lab.runs.config import RunConfig
from fopng.lab.runs.result import DamagedFileError, RunResult, read_result, result_text
from fopng.lab.storage import atomic, locks
from fopng.lab.storage.checkpoint import Checkpoint

Where = Callable[[RunResult], bool]


@final
@dataclass(frozen=True)
class Store:
    """All the runs below one folder."""

    root: Path

    def folder(self, config: RunConfig) -> "RunFolder":
        """Where this run lives, whether it was begun or not."""
        path = self.root / folder_name(config.benchmark) / folder_name(config.method) / config.key
        return RunFolder(path, config)

    def take(self, results: Iterable[RunResult]) -> int:
        """Make finished runs of results from elsewhere, and say how many; one that is finished here gets their experiments alone.

        Raises:
            HeldError: another process is doing one of them.
        """
        taken = 0
        for result in results:
            folder = self.folder(result.config)
            with folder.claim() as done:
                if done is None or set(result.experiments) - set(done.experiments):
                    folder.finish(result if done is None else done.named(*result.experiments))
                taken += done is None
        return taken

    def results(
        self, where: Where = lambda result: True, *, damaged: Callable[[DamagedFileError], None] | None = None
    ) -> list[RunResult]:
        """Every finished run, in its own folder or in a bundle; see `load_results`."""
        return load_results([self.root], where, damaged=damaged)


def selection(
    *, benchmarks: list[str] | None = None, methods: list[str] | None = None, protocols: list[str] | None = None
) -> Where:
    """A filter for `load_results`: each member that is given must hold; None keeps all."""

    def keeps(result: RunResult) -> bool:
        config = result.config
        pairs = ((config.benchmark, benchmarks), (config.method, methods), (config.protocol, protocols))
        return all(wanted is None or value in wanted for value, wanted in pairs)

    return keeps


@final
@dataclass(frozen=True)
class RunFolder:
    """One run's folder."""

    path: Path
    config: RunConfig

    @property
    def log(self) -> Path:
        """`log.jsonl`."""
        return self.path / "log.jsonl"

    @property
    def checkpoint(self) -> Checkpoint:
        """What an unfinished run goes on from."""
        return Checkpoint(self.path)

    def result(self) -> RunResult | None:
        """The result, when the run is finished."""
        try:
            result = read_result(self.path / "result.json")
        except FileNotFoundError:
            return None
        if result.config != self.config:
            raise DamagedFileError(
                f"Expected the run {self.config.key} in {self.path}, got the result of {result.config.key}. "
                "Delete it and run it again."
            )
        return result

    @contextlib.contextmanager
    def claim(self, *, again: bool = False) -> Iterator[RunResult | None]:
        """Hold the run for this process. Gives its result when it is finished already: then there is nothing to do.

        Args:
            again: forget an earlier result, log and checkpoint, and start over.

        Raises:
            HeldError: another process is doing this run; the message says which.
        """
        with contextlib.ExitStack() as held:
            with atomic.as_write_error(self.path):
                self.path.mkdir(parents=True, exist_ok=True)
                held.enter_context(locks.hold(self.path / "lock"))
            atomic.remove_partials(self.path)
            if again:
                self._forget()
            if (result := self.result()) is None:
                self._begin()
            yield result

    def finish(self, result: RunResult) -> None:
        """Write the result, and only then let the checkpoint go. For the process that claimed the run."""
        if result.config != self.config:
            raise ValueError(
                f"Expected the result of run {self.config.key}, got one of {result.config.key}. Mend the caller."
            )
        atomic.write_text(self.path / "result.json", result_text(result))
        self.checkpoint.clear()

    def add_experiments(self, result: RunResult, *names: str) -> RunResult:
        """Add names of experiments to a finished run that nobody has claimed; nothing is written when it has them."""
        if set(names) <= set(result.experiments):
            return result
        with locks.hold_when_free(self.path / "lock"):
            # Read again: another process may have added a name meanwhile.
            named = (self.result() or result).named(*names)
            atomic.write_text(self.path / "result.json", result_text(named))
        return named

    def _begin(self) -> None:
        path, text = self.path / "config.json", atomic.readable_json(self.config.as_dict()) + "\n"
        if not path.exists() or path.read_bytes() != text.encode():
            atomic.write_text(path, text)

    def _forget(self) -> None:
        for path in (self.path / "result.json", self.log):
            path.unlink(missing_ok=True)
        self.checkpoint.clear()


def folder_name(name: str) -> str:
    """A name as a folder, whatever characters it has and however long it is.

    >>> folder_name("split-mnist"), folder_name("../up")
    ('split-mnist', '..%2Fup')
    """
    quoted = urllib.parse.quote(name, safe="", errors="backslashreplace")
    if len(quoted) > 100:
        quoted = f"{quoted[:80]}-{hashlib.sha256(quoted.encode()).hexdigest()[:16]}"
    return quoted.replace(".", "%2E") if set(quoted) <= {"."} else quoted


def load_results(
    paths: Sequence[Path],
    where: Where = lambda result: True,
    *,
    damaged: Callable[[DamagedFileError], None] | None = None,
) -> list[RunResult]:
    """Every result in some places in reading order, each run once and with the names of experiments that it has anywhere.

    Args:
        paths: folders of runs or of bundles, or single bundles; each file in them is read once.
        where: which results to keep, such as `selection(methods=["sgd"])`.
        damaged: called for each file that cannot be read, which is then left out; without it the first is raised.
    """
    found: list[RunResult] = []
    for file in dict.fromkeys(file for path in paths for file in _files(path)):
        try:
            found += bundle.read_bundle(file) if file.name.endswith(bundle.SUFFIX) else [read_result(file)]
        except DamagedFileError as error:
            if damaged is None:
                raise
            damaged(error)
    return merged(filter(where, found))


def merged(results: Iterable[RunResult]) -> list[RunResult]:
    """Each run once, as the last of these results has it, with the names of experiments of all; in reading order."""
    found: dict[str, RunResult] = {}
    for result in results:
        known = found.get(result.config.key)
        found[result.config.key] = result if known is None else result.named(*known.experiments)
    return sorted(found.values(), key=bundle.reading_order)


def _files(path: Path) -> list[Path]:
    if not path.exists():
        raise ValueError(f"Expected a folder of runs or a file of results, got {path}. Name one that exists.")
    return sorted([*path.rglob("result.json"), *path.rglob(f"*{bundle.SUFFIX}")]) if path.is_dir() else [path]
