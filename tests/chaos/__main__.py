"""Attack the project for long: `make chaos`. It goes on where it was left; `--replay KIND:PLACE` does one case."""

import argparse
import shlex
import sys
import tempfile
import time
from pathlib import Path

from chaos import arguments, commands, damaging, killing
from chaos.laboratory import warm
from chaos.tally import Tally, table

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "reliability.md"
MARK = ("<!-- counts -->", "<!-- end of counts -->")

GROUPS = {
    "killed, stopped, refused": killing.KINDS,
    "damaged files": damaging.KINDS,
    "random commands and arguments": {**commands.KINDS, **arguments.KINDS},
}

CASES = {kind: case for kinds in GROUPS.values() for kind, case in kinds.items()}

SLOW = {"a worker of `--jobs`, or its parent, killed": 25}
"""Kinds whose cases take seconds: at most one in so many."""


def aims(kills: int, damaged: int, random: int) -> dict[str, int]:
    """How many cases of each kind: those of a group have even shares."""
    found = {}
    for asked, kinds in zip((kills, damaged, random), GROUPS.values(), strict=True):
        quick = [kind for kind in kinds if kind not in SLOW]
        found |= {kind: -(-asked // len(quick)) for kind in quick}
        found |= {kind: -(-asked // SLOW[kind]) for kind in kinds if kind in SLOW}
    return found


def write_page(tally: Tally, command: str) -> None:
    """Put the table into the page, with its seed and its command."""
    before, _, rest = PAGE.read_text().partition(MARK[0])
    after = rest.partition(MARK[1])[2]
    rows = "\n".join(table(tally, {group: list(kinds) for group, kinds in GROUPS.items()}))
    made = f"{MARK[0]}\n\nSeed {tally.seed}: `{command}`\n\n{rows}\n\n{MARK[1]}"
    PAGE.write_text(before + made + after)


def main() -> int:
    """Attack, write the page, and say what failed."""
    parser = argparse.ArgumentParser(prog="chaos", description=__doc__)
    for name, aim in (("kills", 1000), ("damaged", 5000), ("random", 10_000)):
        parser.add_argument(f"--{name}", type=int, default=aim)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--counts", type=Path, default=ROOT / ".chaos" / "counts.json")
    parser.add_argument("--replay", metavar="KIND:PLACE")
    parser.add_argument("--only", metavar="WORDS", default="", help="Kinds with these words in their names.")
    parser.add_argument("--page", action="store_true", help="Write the table into docs/reliability.md.")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="chaos-cache-") as cache:
        warm(Path(cache))
        if asked.replay:
            kind, _, place = asked.replay.rpartition(":")
            tally = Tally(asked.seed)
            tally.one(kind, CASES[kind], int(place))
        else:
            tally = Tally.at(asked.counts, asked.seed)
            for kind, aim in aims(asked.kills, asked.damaged, asked.random).items():
                if asked.only in kind:
                    began = time.monotonic()
                    tally.attack(kind, CASES[kind], aim)
                    lost = len(tally.failed.get(kind, {}))
                    print(
                        f"{kind}: {tally.tried.get(kind, 0)} cases, {lost} failures, {time.monotonic() - began:.0f} s",
                        flush=True,
                    )
    if asked.page:
        words = shlex.join(word for word in sys.argv[1:] if word != "--page")
        write_page(tally, f'make chaos CHAOS="{words}"' if words else "make chaos")
    print(*tally.failures, sep="\n")
    return bool(tally.failures)


if __name__ == "__main__":
    sys.exit(main())
