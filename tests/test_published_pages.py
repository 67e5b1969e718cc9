"""What README.md and docs/kronecker.md say is what the committed runs say."""

import re
from functools import cache
from pathlib import Path

import pytest

from fopng.config import canonical_json
from fopng.experiments import SELECTED_SETTINGS, sort_out
from fopng.findings import final_validation_accuracy
from fopng.methods.catalog import METHODS
from fopng.request import defaults_of
from fopng.scores import Estimate, paired_difference
from fopng.store import load_results

ROOT = Path(__file__).parents[1]


@cache
def published():
    """The runs under results/, each with the column that it stands in: its protocol, or "tuned"."""
    return [
        ("tuned" if each.settings == SELECTED_SETTINGS else run.config.protocol, run)
        for each in sort_out(load_results([ROOT / "results"])).comparisons
        for run in each.results
    ]


def tuned(where):
    """The runs of every method at its selected settings on a benchmark, by method and seed."""
    found = {}
    for column, run in published():
        if (column, run.config.benchmark) == ("tuned", where):
            found.setdefault(run.config.method, {})[run.config.seed] = run
    return found


def measured(name):
    """The runs under bench/results/NAME."""
    return load_results([ROOT / "bench" / "results" / name])


def section(title):
    """The part of docs/kronecker.md under a heading."""
    text = (ROOT / "docs" / "kronecker.md").read_text(encoding="utf-8")
    return re.split(r"\n##+ ", text.partition(f"### {title}\n")[2])[0]


def tables(text):
    """The tables of a text, each a list of rows of cells; its heading first."""
    blocks = [block for block in text.split("\n\n") if block.startswith("|")]
    rows = [[line for line in block.splitlines() if not line.startswith("| ---")] for block in blocks]
    return [[[cell.strip(" *") for cell in line.strip("|").split("|")] for line in block] for block in rows]


def percent(value):
    return f"{100 * value:.1f}"


def held_out(run):
    return percent(final_validation_accuracy(run))


def shown(estimate):
    return f"{percent(estimate.mean)} ± {percent(estimate.half_width(0.95))}"


def accuracies(runs):
    return {seed: run.final_accuracy for seed, run in runs.items()}


def accuracy(runs):
    return Estimate.of(list(accuracies(runs).values()))


def forgotten(runs):
    return percent(Estimate.of([run.forgetting for run in runs.values()]).mean)


def behind(ours, others):
    return paired_difference(accuracies(ours), accuracies(others))


RATES = [(0.1, 100), (0.2, 100), (0.2, 300), (0.3, 100)]
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
    text = (ROOT / "README.md").read_text(encoding="utf-8").partition("## Results")[2].partition("## What it costs")[0]
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
    assert len(settings) == 15
    assert {canonical_json(each) for each in settings} == {canonical_json(defaults_of(METHODS["fopng-k"]))}


NAMED = {
    "`fopng-k`": "fopng-k",
    "Natural OGD": "natural-ogd",
    "Online EWC": "online-ewc",
    "FOPNG, printed form": "fopng",
    "PreFisher, printed form": "fopng-prefisher",
    "ER, *keeps samples": "er",
}


def chosen(cell):
    """The settings that a cell names: "lr 0.1, strength 30 (the smallest)"."""
    words = [part.split()[:2] for part in cell.split(", ")]
    return {name: float(value) for name, value in words}


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
    with_data = {name for name, entry in METHODS.items() if entry.keeps_data}
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


def in_full(estimate):
    return f"{100 * estimate.mean:.2f} ± {100 * estimate.half_width(0.95):.2f}"


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


def test_the_table_of_twenty_seeds_is_that_of_the_committed_results():
    _, *rows = tables(section("Beside the others, tuned, and where it is not first"))[2]
    _, ours = on_more_seeds("split-cifar10", [*range(20, 25), *range(30, 40)])
    parts = [
        lambda run: run.final_accuracy,
        lambda run: run.accuracy[-1][0],
        lambda run: sum(run.accuracy[-1][1:]) / (len(run.accuracy) - 1),
    ]
    values = [[{seed: part(run) for seed, run in runs.items()} for part in parts] for runs in ours]
    assert all(len(seeds) == 20 for method in values for seeds in method)
    alone = [[in_full(Estimate.of(list(each.values()))) for each in method] for method in values]
    assert [cells for _, *cells in rows] == [
        *alone,
        [in_full(paired_difference(*p)) for p in zip(*values, strict=True)],
    ]


def test_the_tables_of_where_a_task_ends_are_those_of_its_sweeps():
    (_, *mnist), (_, *cifar), (_, *paired) = tables(section("Where a task ends, measured"))
    found = {}
    folders = [ROOT / "results", *(ROOT / "bench" / "results" / name for name in ("settling", "balance", "evenness"))]
    for run in (run for folder in folders for run in load_results([folder])):
        config, settings = run.config, run.config.settings
        if config.method == "fopng-k" and config.validation and settings["lr"] == 0.1:
            kept = (settings["growth"], settings["signals"]) == (1, "sampled")
            point = [settings.get(name, 1) for name in ("evenness", "strength", "balance", "averaging", "merging")]
            # a run that stands in two folders is one
            found.setdefault((config.benchmark, *point), set()).update({final_validation_accuracy(run)} if kept else ())

    def mean(*point):
        values = found.get(point)
        return percent(sum(values) / len(values)) if values else ""

    for point, *cells in mnist:
        evenness, strength = map(float, point.split(","))
        ends = [(0, 0), (0.2, 0), (0.2, 0.2), (0.2, 0.4)]
        places = ("split-mnist", "rotated-mnist", "permuted-mnist")
        assert cells == [mean(where, evenness, strength, 1, *end) for where in places for end in ends], point
    for strength, *cells in cifar:
        ends = [(averaging, merging) for averaging in (0, 0.2) for merging in (0, 0.3)]
        places = ("split-cifar10", "split-cifar100")
        assert cells == [mean(where, 0.1, float(strength), 0, *end) for where in places for end in ends], strength
    assert [cell for _, cell in paired] == [in_full(behind(*pair)) for pair in settled_pairs()]


def settled_pairs():
    """Runs on test that differ in where a task ends, with and without."""
    found = {}
    for run in [*load_results([ROOT / "results"]), *measured("settling")]:
        config, names = run.config, ("strength", "evenness", "balance", "averaging", "merging")
        if config.method != "fopng-k" or config.validation or config.settings["lr"] != 0.1:
            continue
        if config.seed in range(10, 15):
            key = (config.benchmark, *(config.settings[name] for name in names))
            found.setdefault(key, {})[config.seed] = run
    points = [
        ("split-mnist", (300, 0.5, 1, 0.2, 0), (300, 0.5, 1, 0, 0)),
        ("rotated-mnist", (30, 0, 1, 0.2, 0.4), (30, 0, 1, 0, 0.4)),
        ("permuted-mnist", (30, 0, 1, 0.2, 0), (30, 0, 0, 0, 0)),
        ("split-cifar10", (100, 0.1, 0, 0.2, 0), (100, 0.1, 0, 0, 0)),
        ("permuted-mnist", (30, 0, 1, 0.2, 0.2), (30, 0, 1, 0.2, 0)),
        ("split-cifar10", (100, 0.1, 0, 0.2, 0.3), (100, 0.1, 0, 0.2, 0)),
        ("rotated-mnist", (30, 0, 1, 0.2, 0.4), (100, 0, 0, 0, 0)),
        ("split-cifar100", (10, 0.1, 0, 0.2, 0.3), (30, 0.1, 0, 0, 0)),
    ]
    return [(found[where, *ours], found[where, *others]) for where, ours, others in points]


def test_the_tables_of_balance_are_those_of_its_sweeps():
    (_, *mnist), (_, *cifar) = tables(section("Balance, measured"))
    found = {}
    for run in measured("balance"):
        settings = run.config.settings
        if run.config.validation and settings["growth"] == 1:
            point = (settings[name] for name in ("lr", "evenness", "strength", "balance"))
            found.setdefault((run.config.benchmark, *point), []).append(run)
    for point, *cells in mnist:
        evenness, strength = map(float, point.split(","))
        columns = [(f"{place}-mnist", balance) for place in ("split", "rotated", "permuted") for balance in (0, 0.5, 1)]
        values = [found[where, 0.1, evenness, strength, balance] for where, balance in columns]
        assert cells == [held_out(run) for (run,) in values], point
    for point, *cells in cifar:
        pairs = [found["split-cifar10", *map(float, point.split(",")), balance] for balance in (0, 1)]
        assert all(len(pair) == 2 for pair in pairs)
        means = [sum(map(final_validation_accuracy, pair)) / 2 for pair in pairs]
        first = [sum(run.validation_accuracy[-1][0] for run in pair) / 2 for pair in pairs]
        assert cells == [f"{percent(a)} ({percent(b)})" for a, b in zip(means, first, strict=True)], point


def test_the_table_of_ranks_is_that_of_its_runs():
    ((_, *rows),) = tables(section("Rank, measured"))
    found = {
        (run.config.benchmark, str(run.config.settings["rank"]).replace("None", "all")): held_out(run)
        for run in measured("rank")
    }
    places = [(where, kept) for kept, *_ in rows for where in ("rotated-mnist", "permuted-mnist")]
    assert [cell for _, *cells in rows for cell in cells] == [found.pop(place, "") for place in places]
    assert not found


def test_what_is_said_of_larger_rates_is_what_was_measured():
    text = section("Beside the others, tuned, and where it is not first") + section("Convolutions")
    found = {}
    for run in measured("rates"):
        settings = run.config.settings
        point = [settings.get(name, 0) for name in ("lr", "strength", "averaging", "momentum")]
        found.setdefault((run.config.method, *point), []).append(final_validation_accuracy(run))

    def mean(*point):
        return percent(sum(found[point]) / len(found[point]))

    pairs = [[mean("fopng-k", *point, averaging, 0) for averaging in (0.2, 0.5)] for point in RATES]
    assert (
        "have {} and {} with lr 0.1, {} and {} with 0.2 (with strength 300: {} and {}), {} and {} with 0.3; with momentum 0.9 "
        "and lr 0.02 it is {};\nNCL with averaging 0.2 has {} (`bench/results/rates`)"
    ).format(
        *(cell for pair in pairs for cell in pair),
        mean("fopng-k", 0.02, 100, 0.2, 0.9),
        mean("ncl", 0.03, 100000, 0.2, 0),
    ) in text
    smaller = [point for point in found if point[0] == "si"]
    assert len(smaller) == 6
    assert f"six smaller points have {max(mean(*point) for point in smaller)} held out at the best" in text


def test_what_is_said_of_twenty_tasks_is_what_was_measured():
    runs = measured("stream-20")
    (_, *others), (_, *twenty), (_, *fifty) = tables(section("Long streams, measured"))[:3]
    streams = [("stream-20", twenty, (5, 10, 20)), ("stream-50", fifty, (10, 20, 30, 40, 50))]
    for folder, row, after in ((name, row, after) for name, rows, after in streams for row in rows):
        who, seeds, *cells = row
        name = next((name for name in NAMED if who.startswith(name)), who.partition(", ")[0])
        words = who.removeprefix(f"{name}, ")
        settings = {"growth": 0} if "growth 0" in words else {**chosen(words)}
        members = [
            r
            for r in measured(folder)
            if not r.config.validation
            and r.config.method == NAMED.get(name, name.lower())
            and settings.items() <= r.config.settings.items()
        ]
        assert seeds == ", ".join(str(run.config.seed) for run in members), who
        *numbers, end = (percent(sum(r.average_accuracy[n - 1] for r in members) / len(members)) for n in after)
        lost = percent(sum(r.forgetting for r in members) / len(members))
        assert cells == [*numbers, f"{end} ({lost})"], who
    (k20, ncl20, next20), (k50, ncl50, next50) = (
        [rows[n][-1][:4] for n in places] for rows, places in ((twenty, (0, 2, 3)), (fifty, (0, 1, 3)))
    )
    said = f"has {k20} and NCL {ncl20}, after 50 {k50} and {ncl50}; the next has {next20} and {next50}"
    assert said in (ROOT / "README.md").read_text(encoding="utf-8")
    for name, cell, settings in others:
        members = [r for r in runs if r.config.validation and r.config.method == NAMED.get(name, name.lower())]
        best = max(members, key=final_validation_accuracy)
        assert cell == f"{held_out(best)} ({percent(best.forgetting)})", name
        assert chosen(settings).items() <= best.config.settings.items(), name


def test_the_tables_of_evenness_are_those_of_its_sweep():
    ((_, *rows), *_) = tables(section("Evenness, measured"))
    found = {}
    for run in measured("evenness"):
        assert run.config.settings["growth"] == 1
        lr, strength, evenness, signals = (
            run.config.settings[name] for name in ("lr", "strength", "evenness", "signals")
        )
        found.setdefault((lr, strength), {})[run.config.benchmark, signals, evenness] = held_out(run)
    columns = [
        (f"{place}-mnist", signals, evenness)
        for place in ("split", "rotated", "permuted")
        for signals in ("normal", "sampled")
        for evenness in (0, 0.5)
    ]
    table = {tuple(map(float, point.split(","))): cells for point, *cells in rows}
    assert {point: [cells[column] for column in columns] for point, cells in found.items()} == table
