"""Claims about how little FOPNG's settings matter, from the paper's Section 5.3 and its Appendix C."""

import math
from collections.abc import Callable, Iterator, Sequence

from fopng.lab.runs.ablations import BENCHMARKS
from fopng.lab.runs.findings import Ablation, Point, Response, Step, final_by_seed, final_validation_accuracy, rank
from fopng.lab.runs.hyperparameters import paper_benchmarks
from fopng.lab.runs.result import RunResult
from fopng.lab.runs.scores import Estimate
from reproduction.claims.claim import BySeed, Checks, Claim, compare, within
from reproduction.claims.conditions import Condition
from reproduction.claims.finding import Evidence, Region

STABLE = 0.02
ROBUST = 0.01
MARGINAL = 0.01
REASONABLE = 0.05

SAFE = (1e-4, 1e-3)
ENOUGH = 16

ABLATIONS = "Section 5.3, Ablation Studies"


def _ablated(setting: str, found: Callable[[Ablation], Iterator[Evidence]]) -> Checks:
    """A claim about an ablation of a setting."""

    def checks(condition: Condition, benchmark: str) -> Iterator[Evidence | str]:
        ablation = condition.ablations.get((benchmark, setting))
        evidence: list[Evidence | str] = [] if ablation is None else list(found(ablation))
        yield from evidence or [f"{benchmark} ablation of {setting}"]

    return checks


def _step(ablation: Ablation, value: object) -> Step | None:
    return next((step for step in ablation.steps if step.value == value), None)


def _less(ablation: Ablation, first: Step, second: Step, region: Region) -> Evidence:
    one, other = (f"{ablation.setting} = {_said(step.value)}" for step in (first, second))
    words = f"{ablation.benchmark}: final accuracy with {one} less that with {other}"
    return compare(words, first.results, second.results, final_by_seed, region)


def _said(value: object) -> str:
    return "all" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


def _near(reference: object, margin: float) -> Callable[[Ablation], Iterator[Evidence]]:
    """Every value within a margin of this one, or of the one that the comparisons use."""

    def found(ablation: Ablation) -> Iterator[Evidence]:
        middle = _step(ablation, ablation.paper_value if reference is None else reference)
        for step in ablation.steps:
            if middle is not None and step is not middle:
                yield _less(ablation, step, middle, within(margin))

    return found


def _safe_range(ablation: Ablation) -> Iterator[Evidence]:
    """Every lambda of the range not far below the best that was tried."""
    best = max(ablation.steps, key=lambda step: step.accuracy.mean)
    for step in ablation.steps:
        if step is not best and isinstance(step.value, float | int) and SAFE[0] <= step.value <= SAFE[1]:
            yield _less(ablation, best, step, Region(below=STABLE))


def _over_sixteen(ablation: Ablation) -> Iterator[Evidence]:
    enough = _step(ablation, ENOUGH)
    for step in ablation.steps:
        if enough is not None and rank(step.value) > rank(ENOUGH):
            yield _less(ablation, step, enough, Region(below=MARGINAL))


def _one_sample(ablation: Ablation) -> Iterator[Evidence]:
    one, full = _step(ablation, 1), _step(ablation, None)
    if one is not None and full is not None:
        yield _less(ablation, full, one, Region(below=REASONABLE))


def _one_sample_varies(ablation: Ablation) -> Iterator[Evidence]:
    one, full = _step(ablation, 1), _step(ablation, None)
    if one is not None and full is not None:
        words = f"{ablation.benchmark}: distance from the mean accuracy with 1 sample less that with all"
        yield compare(words, one.results, full.results, _distances)


def _distances(results: Sequence[RunResult]) -> BySeed:
    accuracies = final_by_seed(results)
    mean = Estimate.of(list(accuracies.values())).mean
    return {seed: None if value is None else abs(value - mean) for seed, value in accuracies.items()}


def _less_sensitive(condition: Condition, benchmark: str) -> Iterator[Evidence | str]:
    """Only of benchmarks on which something was swept."""
    if any(where == benchmark for where, _ in condition.responses):
        ewc, ours = (
            _varied(condition.responses.get((benchmark, method)), name)
            for method, name in (("ewc", "strength"), ("fopng", "damping"))
        )
        words = f"{benchmark}: spread of accuracy over EWC's strengths less that over FOPNG's dampings"
        yield (
            compare(words, ewc, ours, _spread)
            if ewc and ours
            else f"{benchmark} sweeps of EWC's strength and FOPNG's damping"
        )


def _varied(response: Response | None, name: str) -> list[RunResult]:
    """The runs with every value of a setting, the others as they were chosen; none where there are fewer than three values."""
    if response is None or response.chosen is None:
        return []
    chosen = _others(response.chosen, name)
    points = [point for point in response.points if _others(point, name) == chosen]
    return [result for point in points for result in point.results] if len(points) >= 3 else []


def _others(point: Point, name: str) -> dict[str, object]:
    return {setting: value for setting, value in point.settings.items() if setting != name}


def _spread(results: Sequence[RunResult]) -> BySeed:
    """For each seed that has every value, the best accuracy less the worst; a run that diverged is as bad as can be."""
    found: dict[int, list[float]] = {}
    for result in results:
        accuracy = final_validation_accuracy(result)
        found.setdefault(result.config.seed, []).append(0.0 if math.isnan(accuracy) else accuracy)
    every = max(map(len, found.values()))
    return {seed: max(v) - min(v) if len(v) == every else None for seed, v in sorted(found.items())}


SETTING_CLAIMS = (
    Claim(
        name="lambda-stable",
        sentence="FOPNG performance is largely stable across a wide range of lambda values ...",
        place=ABLATIONS,
        reading="On Split-MNIST and Rotated-MNIST every lambda that was tried ends within "
        f"{100 * STABLE:g} percentage points of the paper's own.",
        benchmarks=BENCHMARKS,
        checks=_ablated("damping", _near(None, STABLE)),
    ),
    Claim(
        name="lambda-safe",
        sentence="... with lambda in [1e-4, 1e-3] being consistently good for all tasks.",
        place=ABLATIONS,
        reading=f"No lambda of that range is {100 * STABLE:g} percentage points or more below the best that was tried.",
        benchmarks=BENCHMARKS,
        checks=_ablated("damping", _safe_range),
    ),
    Claim(
        name="alpha-robust",
        sentence="FOPNG is remarkably robust to the choice of alpha; this parameter effectively does not require tuning so we "
        "recommend 0.5 as a safe value to use.",
        place=ABLATIONS,
        reading=f"Every alpha ends within {100 * ROBUST:g} percentage point of 0.5.",
        benchmarks=BENCHMARKS,
        checks=_ablated("fisher_weight", _near(0.5, ROBUST)),
    ),
    Claim(
        name="fisher-16-enough",
        sentence="... there is a marginal gain in using batch sizes over 16.",
        place=ABLATIONS,
        reading=f"More than 16 samples for the Fisher gain less than {100 * MARGINAL:g} percentage point.",
        benchmarks=BENCHMARKS,
        checks=_ablated("fisher_samples", _over_sixteen),
    ),
    Claim(
        name="fisher-1-reasonable",
        sentence="Remarkably, we find that even using just one random sample to estimate the Fisher information yields reasonable "
        "performance on average ...",
        place=ABLATIONS,
        reading=f"One sample ends less than {100 * REASONABLE:g} percentage points below all samples.",
        benchmarks=BENCHMARKS,
        checks=_ablated("fisher_samples", _one_sample),
    ),
    Claim(
        name="fisher-1-varies",
        sentence="... just with higher variance.",
        place=ABLATIONS,
        reading="Runs with one sample lie further from their mean than runs with all samples, paired over seeds.",
        benchmarks=BENCHMARKS,
        checks=_ablated("fisher_samples", _one_sample_varies),
    ),
    Claim(
        name="less-sensitive-than-ewc",
        sentence="This stability is one key advantage of our method; unlike EWC, performance is much less sensitive to "
        "hyperparameter choice in FOPNG.",
        place=ABLATIONS,
        reading="Over the values of lambda that the paper sweeps, at the chosen learning rate, the accuracy of EWC on validation "
        "spreads more than that of FOPNG.",
        benchmarks=paper_benchmarks(),
        checks=_less_sensitive,
    ),
)
