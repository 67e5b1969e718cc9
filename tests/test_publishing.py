"""The digest of published results, and the pages in docs made again from the files under results/."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from fopng.ablations import ABLATIONS
from fopng.config import canonical_json
from fopng.experiments import SELECTED_SETTINGS, sort_out
from fopng.methods.catalog import METHODS
from fopng.publishing import digest, method_results, pages
from fopng.request import defaults_of
from fopng.scores import Estimate
from fopng.store import load_results
from paper_runs import paper_run
from sweep_runs import held_out, on_test

ROOT = Path(__file__).parents[1]


def runs():
    table = {"sgd": 0.7, "fopng": 0.9, "ogd": 0.8}
    found = [paper_run("split-mnist", method, seed, level) for method, level in table.items() for seed in range(3)]
    found += [paper_run("split-mnist", "sgd", seed, 0.6, protocol="printed", first_task_lr=None) for seed in range(3)]
    found += [
        paper_run("split-mnist", "fopng", seed, 0.85, settings={"damping": value})
        for value in ABLATIONS["lambda"].values
        if value != 5e-4
        for seed in range(3)
    ]
    return [*found, *(held_out(0.5 + rate, settings={"lr": rate}) for rate in (0.1, 0.2, 0.3))]


def test_every_part_is_there():
    text = digest(runs())
    assert "| method | matched protocol, the paper's settings, 5 epochs, 3 seeds | printed protocol" in text
    assert "| sgd | 70.00 ± 0.05 (" in text
    assert "### damping" in text
    assert "| 1e-05 | 85.00 ± " in text
    assert "| split-mnist (matched) | fopng | lr=0.3 | 80.00 | 3 | lr = 0.3 is the largest that was tried. |" in text
    assert "*(beats-ogd)*" in text
    assert "does not hold" in text


def test_a_form_has_one_line_under_all_conditions():
    """Two forms of FOPNG with the paper's settings, one of them with the settings that a sweep chose."""
    forms = [
        on_test(0.7 + 0.1 * (form == "printed"), seed=seed, settings={"projection": form})
        for form in ("printed", "orthogonal")
        for seed in range(3)
    ]
    tried = [held_out(0.9, seed=100, settings={"projection": "printed", "lr": rate}) for rate in (0.5, 0.6)]
    chosen = [on_test(0.9, seed=seed, settings={"projection": "printed", "lr": 0.5}) for seed in (10, 11)]
    lines = [line for line in digest([*forms, *tried, *chosen]).splitlines() if line.startswith("| fopng (")]
    assert [line.split(" | ")[0] for line in lines] == [
        "| fopng (projection=orthogonal)",
        "| fopng (projection=printed)",
    ]
    assert [line.count("±") for line in lines] == [1, 2]


def test_the_same_results_give_the_same_text_in_any_order():
    assert digest(runs()) == digest(runs()[::-1])


def test_what_one_method_reached():
    best = [paper_run("split-mnist", "sgd", seed, 0.99) for seed in range(3)]
    joint = [replace(run, config=replace(run.config, method="joint")) for run in best]  # keeps everything: no rival
    table = method_results([*runs(), *joint], "sgd").splitlines()
    assert len(table) == 4  # a heading, a line, and the two protocols
    assert table[2].startswith(
        "| split-mnist, matched protocol, the paper's settings, 5 epochs, 3 seeds | sgd | 70.00 ± 0.05 ("
    )
    assert "| fopng: 90.00 ± 0.05 (" in table[2]
    assert "sgd: 60.00" in table[3]
    assert method_results(runs(), "gem") == ""
    assert method_results([], "sgd") == ""


def test_no_results_at_all():
    assert "## Final accuracy" in digest([])


@pytest.mark.parametrize("name", ["<script>alert(1)</script>", "a | b", "two\nlines", "`code`"])
def test_hostile_names_are_text(name):
    text = digest(
        [on_test(0.5, benchmark=name, method=name, settings={name: name}), held_out(0.5, benchmark=name, method=name)]
    )
    assert "<script" not in text
    assert "`code`" not in text
    tables = [block for block in text.split("\n\n") if block.startswith("|")]
    assert all(len({line.count("|") for line in block.splitlines()}) == 1 for block in tables)


def test_tables_are_whole():
    for block in digest(runs()).split("\n\n"):
        if block.startswith("|"):
            assert len({line.count("|") for line in block.splitlines()}) == 1


def test_the_published_pages_are_those_of_the_committed_results():
    for name, text in pages(load_results([ROOT / "results"])).items():
        assert (ROOT / "docs" / name).read_text(encoding="utf-8") == text


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
SEEDS = {"split-cifar10": 3, "split-cifar100": 3}


def test_the_numbers_of_the_readme_are_those_of_the_committed_results():
    results = [
        ("tuned" if each.settings == SELECTED_SETTINGS else run.config.protocol, run)
        for each in sort_out(load_results([ROOT / "results"])).comparisons
        for run in each.results
    ]
    text = (ROOT / "README.md").read_text(encoding="utf-8").partition("## Results")[2].partition("## What it costs")[0]
    tables = [block for block in text.split("\n\n") if block.startswith("|")]
    papers = list(READ)[: list(READ).index("GPM")]
    for table, names in zip(tables, (list(READ), papers), strict=True):
        heading, _, *rows = [[cell.strip(" *") for cell in line.strip("|").split("|")] for line in table.splitlines()]
        assert [row[0] for row in rows] == names
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
                assert len(runs) == SEEDS.get(where, 5)
                assert cell == f"{100 * found.mean:.1f} ± {100 * found.half_width(0.95):.1f}", (name, where, protocol)


def test_the_runs_of_fopng_k_that_are_shown_have_its_defaults():
    everything = sort_out(load_results([ROOT / "results"])).comparisons
    papers = [run for each in everything if each.settings != SELECTED_SETTINGS for run in each.results]
    shown = [run.config.settings for run in papers if run.config.method == "fopng-k"]
    assert len(shown) == 15
    defaults = canonical_json(defaults_of(METHODS["fopng-k"]))
    assert {canonical_json(settings) for settings in shown} == {defaults}


def test_what_is_said_of_twenty_tasks_is_what_was_measured():
    runs = load_results([ROOT / "bench" / "results" / "stream-20"])
    assert [run.config.seed for run in runs] == [10, 11]
    text = (ROOT / "docs" / "kronecker.md").read_text(encoding="utf-8")
    for words, numbers in (
        ("over all tasks in the end", [run.final_accuracy for run in runs]),
        ("points forgotten", [run.forgetting for run in runs]),
    ):
        each = ", ".join(f"{100 * number:.2f}" for number in numbers)
        mean = f"{100 * sum(numbers) / len(numbers):.1f}"
        assert re.search(rf"{mean}( %)? {words} \({each}[;)]", text), (words, mean, each)


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
