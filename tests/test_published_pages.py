"""What README.md and docs/kronecker.md say is what the committed runs say."""

import re
from pathlib import Path

from fopng.config import canonical_json
from fopng.experiments import SELECTED_SETTINGS, sort_out
from fopng.methods.catalog import METHODS
from fopng.request import defaults_of
from fopng.scores import Estimate, paired_difference
from fopng.store import load_results

ROOT = Path(__file__).parents[1]

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
    results = [
        ("tuned" if each.settings == SELECTED_SETTINGS else run.config.protocol, run)
        for each in sort_out(load_results([ROOT / "results"])).comparisons
        for run in each.results
    ]
    text = (ROOT / "README.md").read_text(encoding="utf-8").partition("## Results")[2].partition("## What it costs")[0]
    tables = [block for block in text.split("\n\n") if block.startswith("|")]
    assert len(tables) == 2
    for table in tables:
        heading, _, *rows = [[cell.strip(" *") for cell in line.strip("|").split("|")] for line in table.splitlines()]
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
                    result.final_accuracy
                    for column, result in results
                    if (result.config.benchmark, column, result.config.method) == (where, protocol, method)
                    and result.config.settings.get("projection") == form
                ]
                if not runs:
                    assert cell == "", (name, where, protocol)
                    continue
                found = Estimate.of(runs)
                assert len(runs) == SEEDS.get((where, protocol), 5)
                assert cell == f"{100 * found.mean:.1f} ± {100 * found.half_width(0.95):.1f}", (name, where, protocol)


def test_the_runs_of_fopng_k_that_are_shown_have_its_defaults():
    everything = sort_out(load_results([ROOT / "results"])).comparisons
    papers = [run for each in everything if each.settings != SELECTED_SETTINGS for run in each.results]
    shown = [run.config.settings for run in papers if run.config.method == "fopng-k"]
    assert len(shown) == 15
    defaults = canonical_json(defaults_of(METHODS["fopng-k"]))
    assert {canonical_json(settings) for settings in shown} == {defaults}


def section(title):
    """The part of docs/kronecker.md under a heading."""
    text = (ROOT / "docs" / "kronecker.md").read_text(encoding="utf-8")
    return re.split(r"\n##+ ", text.partition(f"### {title}\n")[2])[0]


def tables(text):
    """The tables of a text, each a list of rows of cells; its heading first."""
    blocks = [block for block in text.split("\n\n") if block.startswith("|")]
    rows = [[line for line in block.splitlines() if not line.startswith("| ---")] for block in blocks]
    return [[[cell.strip(" *") for cell in line.strip("|").split("|")] for line in block] for block in rows]


def shown(estimate):
    return f"{100 * estimate.mean:.1f} ± {100 * estimate.half_width(0.95):.1f}"


def tuned(where):
    """The runs of every method at its selected settings: final accuracies by seed, and forgetting, by method."""
    members = [
        run
        for each in sort_out(load_results([ROOT / "results"])).comparisons
        if each.settings == SELECTED_SETTINGS
        for run in each.results
        if run.config.benchmark == where
    ]
    by_method = {}
    for run in members:
        by_method.setdefault(run.config.method, {})[run.config.seed] = run
    return {
        method: ({seed: run.final_accuracy for seed, run in runs.items()}, [run.forgetting for run in runs.values()])
        for method, runs in by_method.items()
    }


NAMED = {
    "`fopng-k`": "fopng-k",
    "Natural OGD": "natural-ogd",
    "Online EWC": "online-ewc",
    "FOPNG, printed form": "fopng",
    "PreFisher, printed form": "fopng-prefisher",
    "ER, *keeps samples": "er",
}


def test_the_tables_of_convolutions_are_those_of_the_committed_results():
    for (heading, *rows), complete in zip(tables(section("Convolutions")), (True, False), strict=True):
        where = heading[0].lower()
        found = tuned(where)
        ours = found["fopng-k"][0]
        said = {}
        for name, _, test, forgotten, behind in rows:
            method = NAMED.get(name, name.lower())
            accuracies, lost = found[method]
            assert test.partition(" (")[0] == shown(Estimate.of(list(accuracies.values()))), name
            missing = Estimate.of(list(accuracies.values())).missing
            assert test.partition(" (")[2] == (f"{missing} of 5 diverged)" if missing else ""), name
            assert forgotten == f"{100 * Estimate.of(lost).mean:.1f}", name
            if method != "fopng-k":
                assert behind.partition(" (")[0] == shown(paired_difference(ours, accuracies)), name
            said[method] = Estimate.of(list(accuracies.values())).mean
        assert list(said.values()) == sorted(said.values(), reverse=True)
        assert not complete or set(said) == set(found)


def test_the_table_of_all_five_is_that_of_the_committed_results():
    heading, *rows = tables(section("Beside the others, tuned, and where it is not first"))[0]
    rows = {name: cells for name, *cells in rows}
    keeps = {name for name, entry in METHODS.items() if entry.keeps_data}
    for column, title in enumerate(heading[1:]):
        found = {method: accuracies for method, (accuracies, _) in tuned(title.lower()).items()}
        means = {method: Estimate.of(list(accuracies.values())) for method, accuracies in found.items()}
        assert rows["`fopng-k`"][column] == shown(means["fopng-k"])
        assert rows["forgotten"][column] == f"{100 * Estimate.of(tuned(title.lower())['fopng-k'][1]).mean:.1f}"
        assert rows["NCL"][column] == shown(means["ncl"])
        differences = iter(cells[column] for name, cells in rows.items() if name.endswith("paired"))
        assert next(differences) == shown(paired_difference(found["fopng-k"], found["ncl"]))
        others = set(means) - keeps - {"fopng-k", "ncl"}
        best = max(others, key=lambda method: means[method].mean)
        assert rows["the next that keeps no samples"][column] == f"{best.upper()} {100 * means[best].mean:.1f}"
        assert next(differences) == shown(paired_difference(found["fopng-k"], found[best]))
        if keeps & set(means):
            best = max(keeps & set(means), key=lambda method: means[method].mean)
            assert rows["the best that keeps samples"][column] == f"{best.upper()} {100 * means[best].mean:.1f}"


def balance_runs():
    """The runs of the sweeps of balance: final accuracy held out and that of the first task."""
    runs = load_results([ROOT / "bench" / "results" / "balance"])
    for run in (run for run in runs if run.config.validation and run.status == "finished"):
        last = run.validation_accuracy[-1]
        yield run.config.benchmark, run.config.settings, sum(last) / len(last), last[0]


def test_the_tables_of_balance_are_those_of_its_sweeps():
    (_, *mnist), (_, *cifar) = tables(section("Balance, measured"))
    found = {}
    for where, settings, accuracy, first in balance_runs():
        point = tuple(settings[name] for name in ("lr", "evenness", "strength", "balance"))
        if settings["growth"] == 1:
            found.setdefault((where, *point), []).append((accuracy, first))
    for point, *cells in mnist:
        evenness, strength = map(float, point.split(","))
        columns = [(f"{place}-mnist", balance) for place in ("split", "rotated", "permuted") for balance in (0, 0.5, 1)]
        values = [found[where, 0.1, evenness, strength, balance] for where, balance in columns]
        assert cells == [f"{100 * accuracy:.1f}" for ((accuracy, _),) in values], point
    for point, *cells in cifar:
        pairs = [found["split-cifar10", *map(float, point.split(",")), balance] for balance in (0, 1)]
        means = [[100 * sum(column) / 2 for column in zip(*pair, strict=True)] for pair in pairs]
        assert cells == [f"{accuracy:.1f} ({first:.1f})" for accuracy, first in means], point


def test_the_table_of_ranks_is_that_of_its_runs():
    ((_, *rows),) = tables(section("Rank, measured"))
    found = {}
    for run in load_results([ROOT / "bench" / "results" / "rank"]):
        last, kept = run.validation_accuracy[-1], run.config.settings["rank"]
        found[run.config.benchmark, "all" if kept is None else str(kept)] = f"{100 * sum(last) / len(last):.1f}"
    said = {
        (where, kept): cell
        for kept, *cells in rows
        for where, cell in zip(("rotated-mnist", "permuted-mnist"), cells, strict=True)
        if cell
    }
    assert said == found


def test_what_is_said_of_twenty_tasks_is_what_was_measured():
    runs = load_results([ROOT / "bench" / "results" / "stream-20"])
    (_, *tested), (_, *held_out) = tables(section("Long streams, measured"))[:2]
    for (_, *cells), settings in zip(
        tested, ({"strength": 5, "growth": 1}, {"strength": 100, "growth": 0}), strict=True
    ):
        members = [r for r in runs if not r.config.validation and settings.items() <= r.config.settings.items()]
        assert [run.config.seed for run in members] == [10, 11]
        for cell, numbers in zip(
            cells,
            (
                [run.final_accuracy for run in members],
                [run.forgetting for run in members],
                *([run.average_accuracy[after - 1] for run in members] for after in (5, 10)),
            ),
            strict=True,
        ):
            mean, _, each = cell.partition(" ")
            assert mean == f"{100 * sum(numbers) / 2:.1f}"
            assert each in ("", "(" + ", ".join(f"{100 * number:.2f}" for number in numbers) + ")")
    for name, cell, _ in held_out:
        members = [r for r in runs if r.config.validation and r.config.method == NAMED.get(name, name.lower())]
        found = [(sum(run.validation_accuracy[-1]) / 20, run.forgetting) for run in members]
        accuracy, forgotten = max(found)
        assert cell == f"{100 * accuracy:.1f} ({100 * forgotten:.1f})", name


def test_the_tables_of_evenness_are_those_of_its_sweep():
    runs = load_results([ROOT / "bench" / "results" / "evenness"])
    found = {}
    for run in runs:
        assert run.config.settings["growth"] == 1
        lr, strength, evenness, signals = (
            run.config.settings[name] for name in ("lr", "strength", "evenness", "signals")
        )
        last = run.validation_accuracy[-1]
        column = (run.config.benchmark, signals, evenness)
        found.setdefault((lr, strength), {})[column] = f"{100 * sum(last) / len(last):.1f}"
    columns = [
        (f"{place}-mnist", signals, evenness)
        for place in ("split", "rotated", "permuted")
        for signals in ("normal", "sampled")
        for evenness in (0, 0.5)
    ]
    text = (ROOT / "docs" / "kronecker.md").read_text(encoding="utf-8").partition("### Evenness, measured")[2]
    _, _, *rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in text.partition("\n\n|")[2].partition("\n\n")[0].splitlines()
    ]
    table = {tuple(map(float, point.split(","))): cells for point, *cells in rows}
    assert {point: [cells[column] for column in columns] for point, cells in found.items()} == table
