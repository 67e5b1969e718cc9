"""Claims about how methods compare, from the paper's Sections 2, 5.1, 5.2 and 5.4."""

from collections.abc import Sequence

from fopng.lab.runs.hyperparameters import paper_benchmarks, paper_methods
from fopng.lab.runs.result import RunResult
from fopng.lab.runs.scores import Estimate
from reproduction.claims.check import POSITIVE, BySeed, Check, Region, all_of, most_of, within
from reproduction.claims.claim import Claim, Judged, Pair, checked, pairs_judged
from reproduction.claims.runs import ClaimRuns

OURS = ("fopng", "fopng-prefisher")
OTHERS = ("sgd", "adam", "ewc", "fng", "ogd")

COMPARABLE = 0.02
VERY_SIMILAR = 0.01
LEARNT = 0.95
SLOWER = Region(above=1.4, below=1.8)

RESULTS = "Section 5.2, Experimental Results"


def _against(benchmark: str, firsts: Sequence[str], seconds: Sequence[str]) -> list[Pair]:
    return [(benchmark, first, second) for first in firsts for second in seconds]


def _leads(benchmark: str, others: Sequence[str] = OTHERS) -> Claim:
    return Claim(
        name=f"{benchmark}-lead",
        sentence="FOPNG and FOPNG-PreFisher outperform all other optimizers on Rotated-MNIST, Split-MNIST, and Split-CIFAR10 ...",
        place=RESULTS,
        reading=f"On {benchmark} the final accuracy of both is above that of each of {', '.join(others)}.",
        judge=lambda runs: pairs_judged(runs, _against(benchmark, OURS, others), POSITIVE),
    )


def _fng_is_poor(runs: ClaimRuns) -> Judged:
    verdicts, checks, missing = [], [], []
    for benchmark in paper_benchmarks():
        here, absent = checked(runs, _against(benchmark, ("ewc", "ogd", "fopng"), ("fng",)), POSITIVE)
        verdicts.append(all_of(here, complete=not absent))
        checks += here
        missing += absent
    return Judged(most_of(verdicts, of=len(paper_benchmarks())), checks, missing)


def _first_task_is_learnt(runs: ClaimRuns) -> Judged:
    checks, missing = [], []
    for benchmark in (name for name in paper_benchmarks() if name.endswith("mnist")):
        for method in paper_methods():
            found = runs.find(benchmark, method, first_task_by_seed)
            if found is None:
                missing.append(f"{benchmark} {method}")
                continue
            by_seed, results = found
            checks.append(
                Check(
                    words=f"{benchmark}: accuracy of {method} on the first task when it was learnt",
                    estimate=Estimate.of(list(by_seed.values())),
                    region=Region(above=LEARNT),
                    runs=tuple(result.config.key for result in results),
                )
            )
    return Judged(all_of(checks, complete=not missing), checks, missing)


def _takes_longer(runs: ClaimRuns) -> Judged:
    checks, missing = [], []
    for benchmark in paper_benchmarks():
        ours = runs.find(benchmark, "fopng", seconds_by_seed)
        for other in ("ewc", "ogd"):
            theirs = runs.find(benchmark, other, seconds_by_seed)
            if ours is None or theirs is None:
                missing.append(f"{benchmark} {other if ours else 'fopng'}")
            elif None in (*ours[0].values(), *theirs[0].values()):
                missing.append(f"{benchmark} fopng and {other}, each with its device to itself")
            elif _machine(ours[1]) == _machine(theirs[1]):
                checks.append(_ratio(f"{benchmark}: seconds of fopng over those of {other}", ours, theirs))
            else:
                missing.append(f"{benchmark} fopng and {other} on one machine")
    return Judged(all_of(checks, complete=not missing), checks, missing)


def _ratio(words: str, first: tuple[BySeed, Sequence[RunResult]], second: tuple[BySeed, Sequence[RunResult]]) -> Check:
    both = sorted(set(first[0]) & set(second[0]))
    ratios = [a / b for seed in both if (a := first[0][seed]) is not None and (b := second[0][seed])]
    runs = tuple(result.config.key for result in (*first[1], *second[1]))
    return Check(words=words, estimate=Estimate.of(ratios), region=SLOWER, runs=runs, unit="times")


def first_task_by_seed(results: Sequence[RunResult]) -> BySeed:
    """The accuracy on the first task when it had just been learnt."""
    return {result.config.seed: result.accuracy[0][0] if result.accuracy else None for result in results}


def forgetting_by_seed(results: Sequence[RunResult]) -> BySeed:
    """The mean fall of each task from its best."""
    return {r.config.seed: None if r.forgetting != r.forgetting else r.forgetting for r in results}


def seconds_by_seed(results: Sequence[RunResult]) -> BySeed:
    """How long each run took; of a run that stood beside others of its method, its share."""
    return {result.config.seed: result.comparable_seconds for result in results if result.status == "finished"}


def _machine(results: Sequence[RunResult]) -> set[object]:
    return {result.environment.get("device_name") for result in results}


def _everywhere(first: str, second: str, *, but: Sequence[str] = ()) -> list[Pair]:
    return [(benchmark, first, second) for benchmark in paper_benchmarks() if benchmark not in but]


COMPARISON_CLAIMS = (
    _leads("rotated-mnist", [name for name in OTHERS if name != "ewc"]),
    _leads("split-mnist"),
    _leads("split-cifar10"),
    Claim(
        name="rotated-mnist-ewc",
        sentence="... with the exception that EWC performs comparably on Rotated-MNIST.",
        place=RESULTS,
        reading=f"The final accuracies of EWC and FOPNG differ by less than {100 * COMPARABLE:g} percentage points.",
        judge=lambda runs: pairs_judged(runs, [("rotated-mnist", "fopng", "ewc")], within(COMPARABLE)),
    ),
    Claim(
        name="permuted-mnist-poor",
        sentence="We note that FOPNG performs poorly on Permuted-MNIST ...",
        place=RESULTS,
        reading="The final accuracies of EWC and of OGD are above that of FOPNG.",
        judge=lambda runs: pairs_judged(runs, _against("permuted-mnist", ("ewc", "ogd"), ("fopng",)), POSITIVE),
    ),
    Claim(
        name="beats-ogd",
        sentence="Importantly, we see that FOPNG outperforms OGD on all benchmarks (except Permuted-MNIST) by a significant "
        "margin ...",
        place=RESULTS,
        reading="On each of the four, the final accuracy of FOPNG is above that of OGD.",
        judge=lambda runs: pairs_judged(runs, _everywhere("fopng", "ogd", but=["permuted-mnist"]), POSITIVE),
    ),
    Claim(
        name="cifar100-ewc",
        sentence="Interestingly, EWC does very well on Split-CIFAR100 ...",
        place=RESULTS,
        reading="The final accuracy of EWC is above that of SGD, Adam, FNG and OGD.",
        judge=lambda runs: pairs_judged(
            runs, _against("split-cifar100", ("ewc",), ("sgd", "adam", "fng", "ogd")), POSITIVE
        ),
    ),
    Claim(
        name="cifar100-lead",
        sentence="... however, FOPNG still manages to outperform all other optimizers.",
        place=RESULTS,
        reading=f"On Split-CIFAR100 the final accuracy of FOPNG is above that of each of {', '.join(OTHERS)}.",
        judge=lambda runs: pairs_judged(runs, _against("split-cifar100", ("fopng",), OTHERS), POSITIVE),
    ),
    Claim(
        name="prefisher-similar",
        sentence="FOPNG and FOPNG-PreFisher exhibit very similar performance on all tasks.",
        place=RESULTS,
        reading=f"On each benchmark their final accuracies differ by less than {100 * VERY_SIMILAR:g} percentage point.",
        judge=lambda runs: pairs_judged(runs, _everywhere("fopng", "fopng-prefisher"), within(VERY_SIMILAR)),
    ),
    Claim(
        name="fng-poor",
        sentence="We also see that FNG performs poorly on most benchmarks ...",
        place=RESULTS,
        reading="On more than half of the benchmarks the final accuracies of EWC, OGD and FOPNG are above that of FNG.",
        judge=_fng_is_poor,
    ),
    Claim(
        name="projection-needed",
        sentence="... demonstrating that the Fisher-orthogonal projections are necessary for reducing forgetting.",
        place=RESULTS,
        reading="On each benchmark FNG, which is FOPNG without the projection, forgets more than FOPNG.",
        judge=lambda runs: pairs_judged(
            runs, _everywhere("fng", "fopng"), POSITIVE, score=forgetting_by_seed, what="forgetting"
        ),
    ),
    Claim(
        name="first-task",
        sentence="For MNIST datasets, we use SGD on the first task with the same learning rate as the optimizer; due to the "
        "simplicity of MNIST this is able to learn the first task with almost perfect accuracy.",
        place="Section 5.1, First Task Training",
        reading=f"On each MNIST benchmark every method has more than {100 * LEARNT:g} % on the first task when it was learnt.",
        judge=_first_task_is_learnt,
    ),
    Claim(
        name="fisher-space",
        sentence="We show empirically that the projection must occur in Fisher space to respect the natural gradient geometry.",
        place="Section 2.6, Orthogonal Gradient Methods",
        reading="On each benchmark the final accuracy of FOPNG is above that of ONG, which projects in Euclidean space.",
        judge=lambda runs: pairs_judged(runs, _everywhere("fopng", "ong"), POSITIVE),
    ),
    Claim(
        name="ong-worse",
        sentence="However, they found that performance decreased with this formulation.",
        place="Section 2.6, Orthogonal Gradient Methods",
        reading="On each benchmark the final accuracy of OGD is above that of ONG, which is OGD with a natural step.",
        judge=lambda runs: pairs_judged(runs, _everywhere("ogd", "ong"), POSITIVE),
    ),
    Claim(
        name="wall-clock",
        sentence="... FOPNG requires around 40% to 80% more wall-clock time than EWC and OGD depending on the dataset.",
        place="Section 5.4, Limitations",
        reading="On each benchmark FOPNG takes between 1.4 and 1.8 times the seconds of EWC and of OGD in this implementation.",
        judge=_takes_longer,
    ),
)
"""In the order of what they weigh."""
