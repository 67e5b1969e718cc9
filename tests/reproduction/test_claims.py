"""Each claim: a world in which it holds, one in which it does not, and what is said when runs are missing."""

import json
import re
from pathlib import Path

import pytest

from fopng.lab.runs.ablations import ABLATIONS, BENCHMARKS
from fopng.lab.runs.hyperparameters import paper_benchmarks, paper_entry
from fopng.lab.runs.settings import defaults_of, find_method
from paper_runs import paper_run
from reproduction.claims import CLAIMS, NO_RUNS, judge
from reproduction.claims.finding import Verdict
from reproduction.claims.section import sections
from sweep_runs import held_out

PAPER = Path(__file__).parents[3] / "shared" / "paper" / "fopng.tex"

MATCHED = "matched protocol, the paper's settings"

LEVELS = {"sgd": 0.7, "adam": 0.7, "ewc": 0.8, "fng": 0.6, "ogd": 0.8, "fopng": 0.9, "fopng-prefisher": 0.9, "ong": 0.7}

AS_CLAIMED = {
    "rotated-mnist": {**LEVELS, "ewc": 0.895},
    "split-mnist": LEVELS,
    "split-cifar10": LEVELS,
    "split-cifar100": {**LEVELS, "ewc": 0.85},
    "permuted-mnist": {**LEVELS, "fopng": 0.65, "fopng-prefisher": 0.65, "ong": 0.6},
}

SECONDS = {"fopng": 16.0, "ewc": 10.0, "ogd": 10.0}


def comparisons(table=AS_CLAIMED, seeds=5, seconds=SECONDS, **changes):
    return [
        paper_run(benchmark, method, seed, accuracy, seconds=seconds.get(method, 8.0), **changes)
        for benchmark, methods in table.items()
        for method, accuracy in methods.items()
        for seed in range(seeds)
    ]


def upside_down(table=AS_CLAIMED):
    """The best is the worst; methods that were level are far apart."""
    turned = {b: {m: 1.4 - a - 0.1 * (m == "fopng") for m, a in methods.items()} for b, methods in table.items()}
    return {b: {**methods, "fng": methods["fng"] - 0.05} for b, methods in turned.items()}


def ablations(accuracy):
    """Every value of every ablation, its accuracy given by the setting and the value's rank from 0 to 1."""
    return [
        paper_run(
            benchmark,
            "fopng",
            seed,
            accuracy(name, rank / (len(ablated.values) - 1), seed),
            settings={ablated.setting: value},
            experiments=(f"ablation/{ablated.setting}",),
        )
        for name, ablated in ABLATIONS.items()
        for rank, value in enumerate(ablated.values)
        for benchmark in BENCHMARKS
        for seed in range(5)
    ]


def sensitivity(ewc, fopng):
    """Sweeps of both lambdas on validation, with this spread of accuracy over their values."""
    return [
        held_out(0.8 - spread * rank + seed * 1e-4, method=method, seed=seed, settings={name: float(rank + 1)})
        for method, name, spread in (("ewc", "strength", ewc), ("fopng", "damping", fopng))
        for rank in range(4)
        for seed in range(3)
    ]


def runs_of(finding):
    return {key for evidence in finding.evidence for key in evidence.runs}


def verdicts(results):
    return {(finding.claim, finding.condition): finding.verdict for finding in judge(results)}


def stable(name, rank, seed):
    if name == "fisher-samples" and rank == 0:
        return 0.88 + 0.004 * (-1) ** seed
    return 0.9 + 0.0005 * (-1) ** seed


def shaky(name, rank, seed):
    wide = name == "fisher-samples" and rank == 1
    return 0.5 + 0.3 * rank + (0.02 if wide else 0.001) * (-1) ** seed


WORLDS = {
    Verdict.HOLDS: [*comparisons(), *ablations(stable), *sensitivity(0.1, 0.01)],
    Verdict.FAILS: [*comparisons(upside_down(), seconds={}, first=0.5), *ablations(shaky), *sensitivity(0.01, 0.1)],
}


@pytest.mark.parametrize("verdict", WORLDS)
def test_every_claim_can_hold_and_can_fail(verdict):
    found = verdicts(WORLDS[verdict])
    assert {name for name, _ in found} == {claim.name for claim in CLAIMS}
    assert {name: found for name, found in found.items() if found is not verdict} == {}


def test_the_time_of_runs_that_shared_a_gpu_decides_nothing():
    shared = comparisons({"split-mnist": AS_CLAIMED["split-mnist"]}, environment={"device": "cuda"})
    alone = comparisons({"rotated-mnist": AS_CLAIMED["rotated-mnist"]}, environment={"device": "cpu"})
    [found] = [each for each in judge([*shared, *alone]) if each.claim == "wall-clock"]
    assert found.verdict is Verdict.OPEN
    assert "split-mnist fopng and ewc, each with its device to itself" in found.missing
    assert all("rotated-mnist" in each.words for each in found.evidence)


def test_without_runs_nothing_is_decided():
    findings = judge([])
    assert len({claim.name for claim in CLAIMS}) == len(CLAIMS)
    assert {finding.condition for finding in findings} == {NO_RUNS}
    assert {finding.verdict for finding in findings} == {Verdict.OPEN}
    assert [finding.claim for finding in findings] == [claim.name for claim in CLAIMS]


def test_one_seed_decides_nothing():
    assert set(verdicts(comparisons(seeds=1)).values()) == {Verdict.OPEN}


def test_what_is_missing_is_named_and_keeps_it_open():
    table = {b: {m: a for m, a in methods.items() if m != "adam"} for b, methods in AS_CLAIMED.items()}
    [finding] = [each for each in judge(comparisons(table)) if each.claim == "split-mnist-lead"]
    assert finding.verdict is Verdict.OPEN
    assert finding.missing == ("split-mnist adam",)


def test_protocols_are_judged_apart_and_share_cifar():
    printed = {b: methods for b, methods in upside_down().items() if b.endswith("mnist")}
    found = verdicts([*comparisons(), *comparisons(printed, protocol="printed", first_task_lr=None)])
    other = "printed protocol, the paper's settings"
    assert found["split-mnist-lead", MATCHED] is Verdict.HOLDS
    assert found["split-mnist-lead", other] is Verdict.FAILS
    assert found["split-cifar10-lead", other] is Verdict.HOLDS


def test_a_trial_says_how_it_departs_from_the_paper():
    for changes, words in (
        ({"epochs": 1}, "epochs 1"),
        ({"scenario": "class", "first_task_lr": 0.5}, "scenario class, first task's rate 0.5"),
        ({"model": "mine:model"}, "model mine:model"),
    ):
        table = {"split-mnist": AS_CLAIMED["split-mnist"]}
        [(_, condition)] = {key for key in verdicts(comparisons(table, seeds=2, **changes)) if key[0] == "beats-ogd"}
        assert condition == f"{MATCHED}; {words}"


def test_the_orthogonal_form_is_not_taken_for_the_printed():
    orthogonal = [
        paper_run(benchmark, "fopng", seed, 0.1, settings={"projection": "orthogonal"})
        for benchmark in paper_benchmarks()
        for seed in range(5)
    ]
    assert verdicts([*comparisons(), *orthogonal])["beats-ogd", MATCHED] is Verdict.HOLDS


def test_among_other_settings_the_papers_are_judged():
    others = [paper_run("split-mnist", "fopng", seed, 0.1, settings={"lr": 0.5}) for seed in range(5)]
    [finding] = [each for each in judge([*comparisons(), *others]) if each.claim == "split-mnist-lead"]
    assert (finding.condition, finding.verdict) == (MATCHED, Verdict.HOLDS)
    assert not {run.config.key for run in others} & runs_of(finding)


def test_several_settings_of_ones_own_are_not_mixed():
    own = [
        paper_run("split-mnist", method, seed, 0.5, settings={"lr": rate})
        for method, rates in (("fopng", (0.5, 0.7)), ("ogd", (0.5,)))
        for rate in rates
        for seed in range(5)
    ]
    [finding] = [each for each in judge(own) if each.claim == "beats-ogd"]
    assert finding.evidence == ()


def test_times_of_two_machines_are_not_compared():
    results = [r for r in comparisons() if r.config.method != "ewc"]
    other = [r for r in comparisons(environment={"device_name": "another"}) if r.config.method == "ewc"]
    assert verdicts([*results, *other])["wall-clock", MATCHED] is Verdict.OPEN


def test_a_finding_is_json_and_knows_its_runs():
    results = comparisons()
    found = {finding.claim: finding for finding in judge(results)}
    json.dumps([finding.as_dict() for finding in found.values()], allow_nan=False)
    own = [r for r in results if r.config.benchmark == "rotated-mnist" and r.config.method in ("fopng", "ewc")]
    assert runs_of(found["rotated-mnist-ewc"]) == {run.config.key for run in own}


def test_a_page_has_the_claims_that_runs_speak_of():
    [extra] = sections(comparisons())
    assert "<h3>rotated-mnist-ewc</h3>" in extra.html
    assert f"✓ holds: {MATCHED}" in extra.html.replace("&#x27;", "'")
    assert re.search(r"split-mnist: final accuracy of fopng less that of sgd</th><td>20.00</td><td>\S+ to", extra.html)
    assert re.search(r"seconds of fopng over those of ewc</th><td>1.60 times</td><td>1.60 times to", extra.html)
    assert "alpha-robust" not in extra.html
    assert sections([held_out(0.5, benchmark="mine")]) == []


def plain(tex):
    """LaTeX as a reader sees it."""
    for pattern, word in (
        (r"\$\\lambda \\in \[10\^\{-4\}, 10\^\{-3\}\]\$", "lambda in [1e-4, 1e-3]"),
        (r"\$\\(lambda|alpha)\$", r"\1"),
        (r"\\%", "%"),
        (r"\\textit\{([^}]*)\}", r"\1"),
    ):
        tex = re.sub(pattern, word, tex)
    return " ".join(tex.split())


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.name)
def test_the_sentence_is_the_papers(claim):
    if not PAPER.exists():
        pytest.skip("the paper's source is not beside this repository")
    words = claim.sentence.removeprefix("... ").removesuffix(" ...").removesuffix(".")
    assert words in plain(PAPER.read_text(encoding="utf-8"))


def test_the_runs_here_have_the_papers_settings():
    run = paper_run("split-mnist", "fopng", 0, 0.5)
    entry = paper_entry("split-mnist", "fopng").settings
    assert run.config.settings == {**defaults_of(find_method("fopng")), **entry}
