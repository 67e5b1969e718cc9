"""Claims about how little FOPNG's settings matter, from the paper's Section 5.3 and its Appendix C."""

from collections.abc import Callable, Sequence

from fopng.lab.benchmarks.catalog import listing_order
from fopng.lab.runs.ablations import BENCHMARKS
from fopng.lab.runs.findings import Ablation, Point, Response, Step, final_validation_accuracy, rank
from fopng.lab.runs.result import RunResult
from reproduction.claims.check import POSITIVE, BySeed, Check, Region, all_of, compare, within
from reproduction.claims.claim import Claim, Judged
from reproduction.claims.runs import ClaimRuns

STABLE = 0.02
ROBUST = 0.01
MARGINAL = 0.01
REASONABLE = 0.05

SAFE = (1e-4, 1e-3)
ENOUGH = 16

ABLATIONS = "Section 5.3, Ablation Studies"

Checks = Callable[[Ablation], list[Check]]


def _on_both(setting: str, checks_of: Checks) -> Callable[[ClaimRuns], Judged]:
    """A claim about an ablation on both of the paper's benchmarks."""

    def judge(runs: ClaimRuns) -> Judged:
        checks: list[Check] = []
        missing: list[str] = []
        for benchmark in BENCHMARKS:
            ablation = runs.ablations.get((setting, benchmark))
            found = [] if ablation is None else checks_of(ablation)
            checks += found
            missing += [] if found else [f"{benchmark} ablation of {setting}"]
        return Judged(all_of(checks, complete=not missing), checks, missing)

    return judge


def _step(ablation: Ablation, value: object) -> Step | None:
    return next((step for step in ablation.steps if step.value == value), None)


def _less(ablation: Ablation, first: Step, second: Step, region: Region) -> Check:
    words = (
        f"{ablation.benchmark}: final accuracy with {_said(ablation, first)} less that with {_said(ablation, second)}"
    )
    return compare(words, (first.by_seed(), first.results), (second.by_seed(), second.results), region)


def _said(ablation: Ablation, step: Step) -> str:
    value = "all" if step.value is None else f"{step.value:g}" if isinstance(step.value, float) else step.value
    return f"{ablation.setting} = {value}"


def _near(reference: object, margin: float) -> Checks:
    """Every value within a margin of the one that the comparisons use."""

    def checks(ablation: Ablation) -> list[Check]:
        value = ablation.paper_value if reference is None else reference
        middle = _step(ablation, value)
        if middle is None:
            return []
        return [_less(ablation, step, middle, within(margin)) for step in ablation.steps if step is not middle]

    return checks


def _safe_range(ablation: Ablation) -> list[Check]:
    """Every lambda of the range not far below the best that was tried."""
    best = max(ablation.steps, key=lambda step: step.accuracy.mean)
    inside = [s for s in ablation.steps if isinstance(s.value, float | int) and SAFE[0] <= s.value <= SAFE[1]]
    return [_less(ablation, best, step, Region(below=STABLE)) for step in inside if step is not best]


def _over_sixteen(ablation: Ablation) -> list[Check]:
    enough = _step(ablation, ENOUGH)
    if enough is None:
        return []
    larger = [step for step in ablation.steps if rank(step.value) > rank(ENOUGH)]
    return [_less(ablation, step, enough, Region(below=MARGINAL)) for step in larger]


def _one_sample(ablation: Ablation) -> list[Check]:
    one, full = _step(ablation, 1), _step(ablation, None)
    return [] if one is None or full is None else [_less(ablation, full, one, Region(below=REASONABLE))]


def _one_sample_varies(ablation: Ablation) -> list[Check]:
    one, full = _step(ablation, 1), _step(ablation, None)
    if one is None or full is None:
        return []
    words = f"{ablation.benchmark}: distance from the mean accuracy with 1 sample less that with all"
    spreads = [(_distances(step), step.results) for step in (one, full)]
    return [compare(words, spreads[0], spreads[1], POSITIVE)]


def _distances(step: Step) -> BySeed:
    mean = step.accuracy.mean
    return {seed: None if value is None else abs(value - mean) for seed, value in step.by_seed().items()}


def _less_sensitive(runs: ClaimRuns) -> Judged:
    checks: list[Check] = []
    missing: list[str] = []
    for benchmark in sorted({benchmark for benchmark, _ in runs.responses}, key=listing_order):
        ewc, ours = (runs.responses.get((benchmark, method)) for method in ("ewc", "fopng"))
        spreads = [None if r is None else _spread(r, name) for r, name in ((ewc, "strength"), (ours, "damping"))]
        if spreads[0] is None or spreads[1] is None:
            missing.append(f"{benchmark} sweeps of EWC's strength and FOPNG's damping")
            continue
        words = f"{benchmark}: spread of accuracy over EWC's strengths less that over FOPNG's dampings"
        checks.append(compare(words, spreads[0], spreads[1], POSITIVE))
    return Judged(all_of(checks, complete=bool(checks) and not missing), checks, missing)


def _spread(response: Response, name: str) -> tuple[BySeed, Sequence[RunResult]] | None:
    """For each seed, the best accuracy less the worst over the values of a setting, the others as they were chosen."""
    if response.chosen is None:
        return None
    others = {n: v for n, v in response.chosen.settings.items() if n != name}
    points = [p for p in response.points if {n: v for n, v in p.settings.items() if n != name} == others]
    if len(points) < 3:
        return None
    results = [result for point in points for result in point.results]
    seeds = sorted({result.config.seed for result in results})
    return {seed: _range(points, seed) for seed in seeds}, results


def _range(points: Sequence[Point], seed: int) -> float | None:
    found = [final_validation_accuracy(r) for point in points for r in point.results if r.config.seed == seed]
    # A run that diverged is as bad as can be.
    values = [0.0 if value != value else value for value in found]
    return max(values) - min(values) if len(values) == len(points) else None


SETTING_CLAIMS = (
    Claim(
        name="lambda-stable",
        sentence="FOPNG performance is largely stable across a wide range of lambda values ...",
        place=ABLATIONS,
        reading="On Split-MNIST and Rotated-MNIST every lambda that was tried ends within "
        f"{100 * STABLE:g} percentage points of the paper's own.",
        judge=_on_both("damping", _near(None, STABLE)),
    ),
    Claim(
        name="lambda-safe",
        sentence="... with lambda in [1e-4, 1e-3] being consistently good for all tasks.",
        place=ABLATIONS,
        reading=f"No lambda of that range is {100 * STABLE:g} percentage points or more below the best that was tried.",
        judge=_on_both("damping", _safe_range),
    ),
    Claim(
        name="alpha-robust",
        sentence="FOPNG is remarkably robust to the choice of alpha; this parameter effectively does not require tuning so we "
        "recommend 0.5 as a safe value to use.",
        place=ABLATIONS,
        reading=f"Every alpha ends within {100 * ROBUST:g} percentage point of 0.5.",
        judge=_on_both("fisher_weight", _near(0.5, ROBUST)),
    ),
    Claim(
        name="fisher-16-enough",
        sentence="... there is a marginal gain in using batch sizes over 16.",
        place=ABLATIONS,
        reading=f"More than 16 samples for the Fisher gain less than {100 * MARGINAL:g} percentage point.",
        judge=_on_both("fisher_samples", _over_sixteen),
    ),
    Claim(
        name="fisher-1-reasonable",
        sentence="Remarkably, we find that even using just one random sample to estimate the Fisher information yields reasonable "
        "performance on average ...",
        place=ABLATIONS,
        reading=f"One sample ends less than {100 * REASONABLE:g} percentage points below all samples.",
        judge=_on_both("fisher_samples", _one_sample),
    ),
    Claim(
        name="fisher-1-varies",
        sentence="... just with higher variance.",
        place=ABLATIONS,
        reading="Runs with one sample lie further from their mean than runs with all samples, paired over seeds.",
        judge=_on_both("fisher_samples", _one_sample_varies),
    ),
    Claim(
        name="less-sensitive-than-ewc",
        sentence="This stability is one key advantage of our method; unlike EWC, performance is much less sensitive to "
        "hyperparameter choice in FOPNG.",
        place=ABLATIONS,
        reading="Over the values of lambda that the paper sweeps, at the chosen learning rate, the accuracy of EWC on validation "
        "spreads more than that of FOPNG.",
        judge=_less_sensitive,
    ),
)
