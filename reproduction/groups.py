"""Results grouped by the experiments that they name."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import final

from fopng.lab.benchmarks.registry import listing_order
from fopng.lab.runs.config import RunConfig, canonical_json
from fopng.lab.runs.hyperparameters import is_papers, papers_settings
from fopng.lab.runs.result import RunResult

PAPER_SETTINGS, SELECTED_SETTINGS = "the paper's settings", "settings selected on validation"

KINDS = ("comparison", "chosen", "ablation", "sweep")

Place = tuple[tuple[int, str], str, int, str, str, str]


@final
@dataclass(frozen=True)
class Group:
    """Runs of one experiment that share all but their settings and seed, and in comparisons their method."""

    kind: str
    """`comparison` or `chosen`, on test; `ablation`; `sweep`, on the held-out part."""
    name: str
    """Of the sweep's file, or of the setting that is ablated."""
    runs: tuple[RunResult, ...]
    """By method and seed."""

    @property
    def config(self) -> RunConfig:
        """One of them."""
        return self.runs[0].config

    @property
    def condition(self) -> str:
        """The protocol, and whose settings."""
        protocol = f"{self.config.protocol} protocol"
        if self.kind == "chosen":
            return f"{protocol}, {SELECTED_SETTINGS}"
        # What the paper has no column for, such as joint training, says nothing about whose settings these are.
        known = [run.config for run in self.runs if papers_settings(run.config) is not None]
        return f"{protocol}, {PAPER_SETTINGS}" if known and all(map(is_papers, known)) else protocol


def groups_of(results: Iterable[RunResult]) -> list[Group]:
    """The groups in the order of the benchmarks; a run without an experiment's name is of a sweep where it held data out."""
    found: dict[Place, dict[str, RunResult]] = {}
    for result in sorted(results, key=lambda result: (result.config.method, result.config.seed, result.config.key)):
        for experiment in result.experiments or ("sweep" if result.config.validation else "comparison",):
            # A run that is counted twice makes intervals too narrow.
            found.setdefault(_place(experiment, result.config), {})[result.config.key] = result
    return [Group(KINDS[place[2]], place[3], tuple(found[place].values())) for place in sorted(found)]


def _place(experiment: str, config: RunConfig) -> Place:
    """The order of groups, and what the runs of one share."""
    kind, _, name = experiment.partition("/")
    together = kind in ("comparison", "chosen")
    apart = ("settings", "seed", "method") if together else ("settings", "seed")
    shared = canonical_json({key: value for key, value in config.as_dict().items() if key not in apart})
    method = "" if together else config.method
    return listing_order(config.benchmark), config.protocol, KINDS.index(kind), "" if together else name, method, shared
