"""What is there already, for commands that say beforehand what they would do."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fopng.config import RunConfig
    from fopng.result import RunResult


def found_in(out: Path) -> Callable[[RunConfig], RunResult | None]:
    """Look up the result of a run in a folder; one that cannot be read counts as missing, since it would be done again."""
    from fopng.result import DamagedFileError
    from fopng.store import Store

    store = Store(out)

    def find(config: RunConfig) -> RunResult | None:
        try:
            return store.folder(config).result()
        except DamagedFileError:
            return None

    return find
