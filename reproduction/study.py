"""The tables of `fopng-k` beside the others, for docs/results/fopng-k-study.md."""

from collections.abc import Callable, Mapping, Sequence

from fopng.lab.report.words import shown
from fopng.lab.runs.findings import Point, final_by_seed
from fopng.lab.runs.hyperparameters import paper_methods
from fopng.lab.runs.result import RunResult
from fopng.lab.runs.scores import Estimate, paired_difference
from fopng.lab.sweep import Rule, respond
from fopng.optim.registry import METHODS
from reproduction.groups import groups_of
from reproduction.numbers import STREAMS
from reproduction.tables import Results, short, table

Methods = Mapping[str, Sequence[RunResult]]

NAMES = {
    "fopng-k": "`fopng-k`",
    "fopng-prefisher": "PreFisher",
    "lwf": "LwF",
    "adam": "Adam",
    "natural-ogd": "Natural OGD",
    "online-ewc": "Online EWC",
}
"""Of methods that are not written in capitals."""

LESS = "`fopng-k` less it, paired"


DEFAULT_ROWS = (
    *("`fopng-k`", "forgotten", "the best of the paper's", LESS, "NCL at its default", LESS),
    *("SGP, at SGD's rate in the paper", LESS),
)


def at_default(results: Results) -> str:
    """`fopng-k` at its default beside the best of the paper's methods, NCL and SGP, all under the matched protocol."""
    columns = []
    for benchmark in STREAMS:
        methods = _methods(results, "comparison", benchmark)
        best = max(paper_methods(), key=lambda method: _accuracy(methods[method]).mean)
        own, ncl, sgp = (short(_accuracy(methods[method])) for method in ("fopng-k", "ncl", "sgp"))
        papers = f"{_name(best)} {100 * _accuracy(methods[best]).mean:.1f}"
        less = [short(_less(methods, method)) for method in (best, "ncl", "sgp")]
        columns.append([own, _forgotten(methods["fopng-k"]), papers, less[0], ncl, less[1], sgp, less[2]])
    return table(["", *STREAMS.values()], zip(DEFAULT_ROWS, *columns, strict=True), numbers="---")


def tuned(benchmark: str) -> Callable[[Results], str]:
    """Every method with its selected settings on a benchmark, the highest mean first."""

    def made(results: Results) -> str:
        methods = _methods(results, "chosen", benchmark)
        sweeps = [g for g in groups_of(results) if g.kind == "sweep" and g.config.benchmark == benchmark]
        chosen = {g.config.method: respond(g.runs, Rule.of_paper(benchmark)).chosen for g in sweeps}
        order = sorted(methods, key=lambda method: -_accuracy(methods[method]).mean)
        rows = [_tuned_row(methods, method, chosen[method]) for method in order]
        return table([STREAMS[benchmark], "chosen", "test", "forgotten", LESS], rows, numbers="---")

    return made


def _tuned_row(methods: Methods, method: str, chosen: Point | None) -> list[str]:
    own, less = _accuracy(methods[method]), _less(methods, method)
    diverged = f" ({own.missing} of {own.count + own.missing} diverged)" if own.missing else ""
    few = f" ({less.count} seeds)" if own.missing else ""
    settings = {} if chosen is None else {"lr": methods[method][0].config.settings["lr"], **chosen.settings}
    return [
        _name(method) + (", *keeps samples*" if METHODS[method].about.keeps_data else ""),
        ", ".join(f"{name} {shown(value)}" for name, value in settings.items()),
        short(own) + diverged,
        _forgotten(methods[method]),
        "" if method == "fopng-k" else short(less) + few,
    ]


def _methods(results: Results, kind: str, benchmark: str) -> Methods:
    """The matched runs of each method, those of FOPNG and PreFisher in the printed form."""
    found: dict[str, list[RunResult]] = {}
    for group in groups_of(results):
        if (group.kind, group.config.benchmark, group.config.protocol) == (kind, benchmark, "matched"):
            for run in group.runs:
                if run.config.settings.get("projection", "printed") == "printed":
                    found.setdefault(run.config.method, []).append(run)
    return found


def _accuracy(runs: Sequence[RunResult]) -> Estimate:
    return Estimate.of(list(final_by_seed(runs).values()))


def _less(methods: Methods, method: str) -> Estimate:
    return paired_difference(final_by_seed(methods["fopng-k"]), final_by_seed(methods[method]))


def _forgotten(runs: Sequence[RunResult]) -> str:
    return f"{100 * Estimate.of([run.forgetting for run in runs]).mean:.1f}"


def _name(method: str) -> str:
    return NAMES.get(method, method.upper())
