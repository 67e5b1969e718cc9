"""What README.md and the pages under docs/ say of the methods beside each other is what was measured and committed."""

import json
import re

import pytest

from fopng.lab.runs.config import canonical_json
from fopng.lab.runs.hyperparameters import paper_methods
from fopng.lab.runs.request import defaults_of
from fopng.lab.runs.scores import Estimate, paired_difference
from fopng.optim.registry import METHODS
from published import (
    NAMED,
    accuracy,
    behind,
    chosen,
    forgotten,
    in_full,
    measured,
    page,
    percent,
    published,
    section,
    shown,
    tables,
    tuned,
)

READ = {
    "SGD": ("sgd", None),
    "Adam": ("adam", None),
    "EWC": ("ewc", None),
    "FNG": ("fng", None),
    "OGD": ("ogd", None),
    "FOPNG, printed form": ("fopng", "printed"),
    "PreFisher, printed form": ("fopng-prefisher", "printed"),
    "FOPNG, orthogonal form": ("fopng", "orthogonal"),
    "GPM": ("gpm", None),
    "NCL": ("ncl", None),
    "`fopng-k`, ours": ("fopng-k", None),
}
WHERE = {
    "Split": "split-mnist",
    "Rotated": "rotated-mnist",
    "Permuted": "permuted-mnist",
    "Split-CIFAR10": "split-cifar10",
    "Split-CIFAR100": "split-cifar100",
}
SEEDS = {("split-cifar10", "matched"): 3, ("split-cifar100", "matched"): 3}


def test_the_numbers_of_the_readme_are_those_of_the_committed_results():
    text = section("Results", "README.md")
    found = tables(text)
    assert len(found) == 2
    for heading, *rows in found:
        assert [row[0] for row in rows] == list(READ)
        columns, benchmark = [], ""
        for title in heading[1:]:
            name, _, protocol = title.rpartition(", ")
            benchmark = WHERE[name] if name else benchmark
            columns.append((benchmark, protocol))
        for name, *cells in rows:
            method, form = READ[name]
            for (where, protocol), cell in zip(columns, cells, strict=True):
                runs = [
                    run.final_accuracy
                    for column, run in published()
                    if (run.config.benchmark, column, run.config.method) == (where, protocol, method)
                    and run.config.settings.get("projection") == form
                ]
                assert len(runs) in (0, SEEDS.get((where, protocol), 5))
                assert cell == (shown(Estimate.of(runs)) if runs else ""), (name, where, protocol)


def test_the_runs_of_fopng_k_that_are_shown_have_its_defaults():
    settings = [r.config.settings for column, r in published() if column != "tuned" and r.config.method == "fopng-k"]
    assert len(settings) == 21
    assert {canonical_json(each) for each in settings} == {canonical_json(defaults_of(METHODS["fopng-k"]))}


def test_the_table_of_its_default_is_that_of_the_committed_results():
    heading, *rows = tables(section("At its default"))[0]
    printed = {"FOPNG": "fopng", "PreFisher": "fopng-prefisher", **{name.upper(): name for name in paper_methods()}}
    for title, column in zip(heading[1:], list(zip(*rows, strict=True))[1:], strict=True):
        found = {}
        for where, run in published():
            form = run.config.settings.get("projection", "printed")
            if (where, run.config.benchmark, form) == ("matched", title.lower(), "printed"):
                found.setdefault(run.config.method, {})[run.config.seed] = run
        ours, best = found["fopng-k"], max(paper_methods(), key=lambda method: accuracy(found[method]).mean)
        own, lost, following, difference, *beside = column
        assert (own, lost) == (shown(accuracy(ours)), forgotten(ours))
        name, value = following.split()
        assert (printed[name], value) == (best, percent(accuracy(found[best]).mean))
        assert difference == shown(behind(ours, found[best]))
        for method, text, less in zip(("ncl", "sgp"), beside[::2], beside[1::2], strict=True):
            assert (text, less) == (shown(accuracy(found[method])), shown(behind(ours, found[method])))
        level = [m for m in paper_methods() if (less := behind(ours, found[m])).mean < less.half_width(0.95)]
        assert level == (["adam"] if title == "Split-CIFAR10" else [])


@pytest.mark.parametrize("number", [0, 1])
def test_a_table_of_convolutions_is_that_of_the_committed_results(number):
    heading, *rows = tables(section("Convolutions"))[number]
    found = tuned(heading[0].lower())
    means = []
    for name, settings, test, lost, difference in rows:
        runs = found[NAMED.get(name, name.lower())]
        estimate = accuracy(runs)
        means.append(estimate.mean)
        note = f" ({estimate.missing} of 5 diverged)" if estimate.missing else ""
        assert test == shown(estimate) + note, name
        assert lost == forgotten(runs), name
        for run in runs.values():
            assert chosen(settings).items() <= run.config.settings.items(), name
        paired = behind(found["fopng-k"], runs)
        few = f" ({paired.count} seeds)" if paired.count < 5 else ""
        assert difference == ("" if name == "`fopng-k`" else shown(paired) + few), name
    assert means == sorted(means, reverse=True)
    assert len(rows) == len(found)


def test_the_table_of_all_five_is_that_of_the_committed_results():
    heading, *rows = tables(section("Beside the others, tuned, and where it is not first"))[0]
    with_data = {name for name, entry in METHODS.items() if entry.about.keeps_data}
    for title, column in zip(heading[1:], list(zip(*rows, strict=True))[1:], strict=True):
        found = tuned(title.lower())
        ours = found["fopng-k"]
        others = sorted(set(found) - {"fopng-k", "ncl"}, key=lambda method: -accuracy(found[method]).mean)
        best = next(method for method in others if method not in with_data)
        keeper = next((method for method in others if method in with_data), None)
        own, lost, point, ncl, less_ncl, following, less_following, keeping = column
        assert (own, lost) == (shown(accuracy(ours)), forgotten(ours))
        values = [float(word.split()[0]) for word in point.split(", ")]
        for run in ours.values():
            assert [run.config.settings[name] for name in ("strength", "evenness", "balance", "merging")] == values
            assert [run.config.settings[name] for name in ("lr", "averaging")] == [0.1, 0.2]
        assert (ncl, less_ncl) == (shown(accuracy(found["ncl"])), shown(behind(ours, found["ncl"])))
        assert following == f"{best.upper()} {percent(accuracy(found[best]).mean)}"
        assert less_following == shown(behind(ours, found[best]))
        best_kept = "not measured" if keeper is None else f"{keeper.upper()} {percent(accuracy(found[keeper]).mean)}"
        assert keeping == best_kept


def test_what_the_readme_says_of_samples_on_split_cifar100_is_what_the_committed_results_say():
    found = tuned("split-cifar100")
    less = [percent(behind(found["fopng-k"], found[name]).mean) for name in ("er", "gem")]
    own = [percent(accuracy(found[name]).mean) for name in ("er", "gem")]
    said = "on Split-CIFAR100 by {} and {} ({} and {})".format(*less, *own)
    assert said in page("README.md")


def on_more_seeds(benchmark, seeds):
    """`fopng-k` and NCL as they were chosen, on these seeds beside the ones that were published: the new ones, and all."""
    known = [tuned(benchmark)[name] for name in ("fopng-k", "ncl")]
    new = []
    for runs in known:
        (config, *_) = (run.config for run in runs.values())
        same = (
            run
            for run in measured("settling")
            if (run.config.benchmark, run.config.method, run.config.validation) == (benchmark, config.method, False)
            and canonical_json(run.config.settings) == canonical_json(config.settings)
        )
        new.append({run.config.seed: run for run in same if run.config.seed in seeds})
        assert sorted(new[-1]) == list(seeds)
    return new, [{**first, **others} for first, others in zip(known, new, strict=True)]


def test_the_table_of_fresh_seeds_is_that_of_the_committed_results():
    heading, *rows = tables(section("Beside the others, tuned, and where it is not first"))[1]
    for title, column in zip(heading[1:], list(zip(*rows, strict=True))[1:], strict=True):
        new, ten = on_more_seeds(title.lower(), range(20, 25))
        differences = [in_full(behind(*pair)) for pair in (new, ten)]
        assert list(column) == [*(shown(accuracy(runs)) for runs in new), *differences]


def on_sixty_seeds():
    """`fopng-k` and NCL on Split-CIFAR10."""
    _, both = on_more_seeds("split-cifar10", [*range(20, 25), *range(30, 80)])
    assert [len(runs) for runs in both] == [60, 60]
    return both


FIRST_TWENTY, ALL_SIXTY, OTHER_FORTY = range(10, 40), range(10, 80), range(40, 80)


def scored(runs, score, seeds=ALL_SIXTY):
    return {seed: score(run) for seed, run in runs.items() if seed in seeds}


def in_the_end(run):
    return run.final_accuracy


def on_the_first(run):
    return run.accuracy[-1][0]


def on_the_others(run):
    return sum(run.accuracy[-1][1:]) / (len(run.accuracy) - 1)


def test_the_table_of_sixty_seeds_is_that_of_the_committed_results():
    _, *rows = tables(section("Beside the others, tuned, and where it is not first"))[2]
    values = [[scored(runs, part) for part in (in_the_end, on_the_first, on_the_others)] for runs in on_sixty_seeds()]
    alone = [[in_full(Estimate.of(list(each.values()))) for each in method] for method in values]
    assert [cells for _, *cells in rows] == [
        *alone,
        [in_full(paired_difference(*p)) for p in zip(*values, strict=True)],
    ]


def test_what_is_said_of_sixty_seeds_is_what_the_committed_results_say():
    text, both = section("Beside the others, tuned, and where it is not first"), on_sixty_seeds()

    def ahead(part, seeds):
        return in_full(paired_difference(*(scored(runs, part, seeds) for runs in both)))

    whole, early, late = (ahead(in_the_end, seeds) for seeds in (ALL_SIXTY, FIRST_TWENTY, OTHER_FORTY))
    assert f"({whole}; the first twenty had {early}, the other forty {late})" in text
    whole, late = (ahead(on_the_others, seeds) for seeds in (ALL_SIXTY, OTHER_FORTY))
    assert f"learn themselves, it is {whole} ahead ({late} on the forty" in text
    short = [shown(paired_difference(*(scored(runs, part) for runs in both))) for part in (in_the_end, on_the_others)]
    assert "({}; {} ahead on all tasks but the first)".format(*short) in page("README.md")
    twenty = Estimate.of(list(scored(both[0], in_the_end, FIRST_TWENTY).values()))
    assert f"where the chosen point has {in_full(twenty)}" in text


def test_what_is_said_of_the_first_of_the_tasks_is_what_the_committed_results_say():
    text, both = section("Beside the others, tuned, and where it is not first"), on_sixty_seeds()
    learnt = [Estimate.of(list(scored(runs, lambda run: run.accuracy[0][0]).values())).mean for runs in both]
    assert [f"{percent(mean)} only" in text for mean in learnt] == [True, True]

    def lost(runs, seeds):
        return scored(runs, lambda run: run.accuracy[0][0] - run.accuracy[-1][0], seeds).values()

    def often(runs, seeds):
        return sum(share >= 0.08 for share in lost(runs, seeds))

    (early, late), (early_ncl, late_ncl) = ([often(runs, s) for s in (FIRST_TWENTY, OTHER_FORTY)] for runs in both)
    most, most_ncl = (f"{100 * max(lost(runs, ALL_SIXTY)):.0f}" for runs in both)
    parts = f"({early} of the first twenty, {late} of the other forty; up to {most} points)"
    assert f"by `fopng-k` on {early + late} of 60 seeds {parts}" in text
    assert f"by NCL on {early_ncl + late_ncl} ({early_ncl} and {late_ncl}; up to {most_ncl})" in text
    ends = [[sum(run.accuracy[-1][n] for run in runs.values()) / 60 for n in range(1, 5)] for runs in both]
    second, third, fourth, fifth = (ours - theirs for ours, theirs in zip(*ends, strict=True))
    more, less = (f"{percent(a)} and {percent(b)}" for a, b in ((second, fifth), (-third, -fourth)))
    assert f"has {more} more on the second and fifth, {less} less on the third and fourth" in text


def step_ratios():
    return json.loads(page("bench/results/step.json"))["ratios"]


def test_the_table_of_steps_is_that_of_the_committed_measurement():
    ratios, text = step_ratios(), section("A training step, on two cores", "docs/performance.md")
    _, *rows = tables(text)[0]
    cells = [row[n : n + 3] for row in rows for n in (0, 3, 6) if row[n]]
    found = {name.replace("fopng, dense", "dense"): multiples for name, *multiples in cells}
    aside = {"torch.optim.SGD", "microseconds of torch.optim.SGD"}
    assert set(found) == set(ratios["mlp"]) - aside == set(ratios["cnn"]) - aside
    for name, multiples in found.items():
        for network, cell in zip(("mlp", "cnn"), multiples, strict=True):
            assert cell == f"{ratios[network][name]:.{len(cell.partition('.')[2])}f}", name
    micro, milli = (ratios[network]["microseconds of torch.optim.SGD"] for network in ("mlp", "cnn"))
    assert f"({micro:.0f} us on the MLP, {milli / 1000:.1f} ms on the CNN)" in text


def test_what_is_said_of_steps_elsewhere_is_that_measurement():
    ratios = step_ratios()
    mlp, cnn = ratios["mlp"], ratios["cnn"]
    ours = f"{mlp['fopng-k']:.1f} times plain SGD's on the paper's MLP and {cnn['fopng-k']:.1f} times on its CNN"
    assert f"a step takes {ours}" in page("docs/kronecker.md")
    assert f"plain SGD's | {mlp['fopng']:.1f} (dense: {mlp['dense']:.0f}) |" in page("README.md")
    told = re.findall(
        r"^## [^`\n]*`([a-z-]+)`(?:(?!^## ).)*?\*Costs:\* (\d+\.\d)", page("docs/methods.md"), re.M | re.S
    )
    assert len(told) > 15
    assert told == [(name, f"{mlp[name]:.1f}") for name, _ in told]
