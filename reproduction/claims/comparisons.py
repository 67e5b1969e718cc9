"""Claims about how methods compare, from the paper's Sections 2, 5.1, 5.2 and 5.4."""

from collections.abc import Iterator, Sequence

from fopng.lab.runs.hyperparameters import paper_benchmarks, paper_methods
from fopng.lab.runs.result import RunResult
from fopng.lab.runs.scores import Estimate
from reproduction.claims.claim import Claim, forgetting_by_seed, keys_of, pairs, within
from reproduction.claims.conditions import Condition
from reproduction.claims.finding import Evidence, Region

OURS = ("fopng", "fopng-prefisher")
OTHERS = ("sgd", "adam", "ewc", "fng", "ogd")

COMPARABLE = 0.02
VERY_SIMILAR = 0.01
LEARNT = 0.95
SLOWER = Region(above=1.4, below=1.8)

RESULTS = "Section 5.2, Experimental Results"
EVERYWHERE = paper_benchmarks()


def _leads(benchmark: str, others: Sequence[str] = OTHERS) -> Claim:
    return Claim(
        name=f"{benchmark}-lead",
        sentence="FOPNG and FOPNG-PreFisher outperform all other optimizers on Rotated-MNIST, Split-MNIST, and Split-CIFAR10 ...",
        place=RESULTS,
        reading=f"On {benchmark} the final accuracy of both is above that of each of {', '.join(others)}.",
        benchmarks=[benchmark],
        checks=pairs(OURS, others),
    )


def _first_task_is_learnt(condition: Condition, benchmark: str) -> Iterator[Evidence | str]:
    for method in paper_methods():
        runs = condition.of(benchmark, method)
        if not runs:
            yield f"{benchmark} {method}"
            continue
        yield Evidence(
            words=f"{benchmark}: accuracy of {method} on the first task when it was learnt",
            estimate=Estimate.of([run.accuracy[0][0] if run.accuracy else None for run in runs]),
            region=Region(above=LEARNT),
            runs=keys_of(runs),
        )


def _takes_longer(condition: Condition, benchmark: str) -> Iterator[Evidence | str]:
    """Runs that shared a device with others have no time of their own, and machines are not compared."""
    ours = condition.of(benchmark, "fopng")
    for other in ("ewc", "ogd"):
        theirs = condition.of(benchmark, other)
        times, others = _seconds(ours), _seconds(theirs)
        if not ours or not theirs:
            yield f"{benchmark} {other if ours else 'fopng'}"
        elif None in (*times.values(), *others.values()):
            yield f"{benchmark} fopng and {other}, each with its device to itself"
        elif _machines(ours) != _machines(theirs):
            yield f"{benchmark} fopng and {other} on one machine"
        else:
            yield Evidence(
                words=f"{benchmark}: seconds of fopng over those of {other}",
                estimate=Estimate.of([a / b for seed, a in sorted(times.items()) if a and (b := others.get(seed))]),
                region=SLOWER,
                runs=keys_of(ours, theirs),
                unit="times",
            )


def _seconds(results: Sequence[RunResult]) -> dict[int, float | None]:
    return {result.config.seed: result.comparable_seconds for result in results if result.status == "finished"}


def _machines(results: Sequence[RunResult]) -> set[object]:
    return {result.environment.get("device_name") for result in results}


COMPARISON_CLAIMS = (
    _leads("rotated-mnist", [name for name in OTHERS if name != "ewc"]),
    _leads("split-mnist"),
    _leads("split-cifar10"),
    Claim(
        name="rotated-mnist-ewc",
        sentence="... with the exception that EWC performs comparably on Rotated-MNIST.",
        place=RESULTS,
        reading=f"The final accuracies of EWC and FOPNG differ by less than {100 * COMPARABLE:g} percentage points.",
        benchmarks=["rotated-mnist"],
        checks=pairs(["fopng"], ["ewc"], within(COMPARABLE)),
    ),
    Claim(
        name="permuted-mnist-poor",
        sentence="We note that FOPNG performs poorly on Permuted-MNIST ...",
        place=RESULTS,
        reading="The final accuracies of EWC and of OGD are above that of FOPNG.",
        benchmarks=["permuted-mnist"],
        checks=pairs(["ewc", "ogd"], ["fopng"]),
    ),
    Claim(
        name="beats-ogd",
        sentence="Importantly, we see that FOPNG outperforms OGD on all benchmarks (except Permuted-MNIST) by a significant "
        "margin ...",
        place=RESULTS,
        reading="On each of the four, the final accuracy of FOPNG is above that of OGD.",
        benchmarks=[benchmark for benchmark in EVERYWHERE if benchmark != "permuted-mnist"],
        checks=pairs(["fopng"], ["ogd"]),
    ),
    Claim(
        name="cifar100-ewc",
        sentence="Interestingly, EWC does very well on Split-CIFAR100 ...",
        place=RESULTS,
        reading="The final accuracy of EWC is above that of SGD, Adam, FNG and OGD.",
        benchmarks=["split-cifar100"],
        checks=pairs(["ewc"], ["sgd", "adam", "fng", "ogd"]),
    ),
    Claim(
        name="cifar100-lead",
        sentence="... however, FOPNG still manages to outperform all other optimizers.",
        place=RESULTS,
        reading=f"On Split-CIFAR100 the final accuracy of FOPNG is above that of each of {', '.join(OTHERS)}.",
        benchmarks=["split-cifar100"],
        checks=pairs(["fopng"], OTHERS),
    ),
    Claim(
        name="prefisher-similar",
        sentence="FOPNG and FOPNG-PreFisher exhibit very similar performance on all tasks.",
        place=RESULTS,
        reading=f"On each benchmark their final accuracies differ by less than {100 * VERY_SIMILAR:g} percentage point.",
        benchmarks=EVERYWHERE,
        checks=pairs(["fopng"], ["fopng-prefisher"], within(VERY_SIMILAR)),
    ),
    Claim(
        name="fng-poor",
        sentence="We also see that FNG performs poorly on most benchmarks ...",
        place=RESULTS,
        reading="On more than half of the benchmarks the final accuracies of EWC, OGD and FOPNG are above that of FNG.",
        benchmarks=EVERYWHERE,
        checks=pairs(["ewc", "ogd", "fopng"], ["fng"]),
        most=True,
    ),
    Claim(
        name="projection-needed",
        sentence="... demonstrating that the Fisher-orthogonal projections are necessary for reducing forgetting.",
        place=RESULTS,
        reading="On each benchmark FNG, which is FOPNG without the projection, forgets more than FOPNG.",
        benchmarks=EVERYWHERE,
        checks=pairs(["fng"], ["fopng"], score=forgetting_by_seed, what="forgetting"),
    ),
    Claim(
        name="first-task",
        sentence="For MNIST datasets, we use SGD on the first task with the same learning rate as the optimizer; due to the "
        "simplicity of MNIST this is able to learn the first task with almost perfect accuracy.",
        place="Section 5.1, First Task Training",
        reading=f"On each MNIST benchmark every method has more than {100 * LEARNT:g} % on the first task when it was learnt.",
        benchmarks=[benchmark for benchmark in EVERYWHERE if benchmark.endswith("mnist")],
        checks=_first_task_is_learnt,
    ),
    Claim(
        name="fisher-space",
        sentence="We show empirically that the projection must occur in Fisher space to respect the natural gradient geometry.",
        place="Section 2.6, Orthogonal Gradient Methods",
        reading="On each benchmark the final accuracy of FOPNG is above that of ONG, which projects in Euclidean space.",
        benchmarks=EVERYWHERE,
        checks=pairs(["fopng"], ["ong"]),
    ),
    Claim(
        name="ong-worse",
        sentence="However, they found that performance decreased with this formulation.",
        place="Section 2.6, Orthogonal Gradient Methods",
        reading="On each benchmark the final accuracy of OGD is above that of ONG, which is OGD with a natural step.",
        benchmarks=EVERYWHERE,
        checks=pairs(["ogd"], ["ong"]),
    ),
    Claim(
        name="wall-clock",
        sentence="... FOPNG requires around 40% to 80% more wall-clock time than EWC and OGD depending on the dataset.",
        place="Section 5.4, Limitations",
        reading="On each benchmark FOPNG takes between 1.4 and 1.8 times the seconds of EWC and of OGD in this implementation.",
        benchmarks=EVERYWHERE,
        checks=_takes_longer,
    ),
)
"""In the order of what they weigh."""
