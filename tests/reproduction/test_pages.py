"""The digest of published results, and the pages in docs made again from the files under reproduction/results/."""

from dataclasses import replace
from pathlib import Path

import pytest

from fopng.lab.runs.ablations import ABLATIONS
from fopng.lab.runs.store import load_results
from paper_runs import paper_run
from reproduction.pages import digest, method_results, pages
from sweep_runs import held_out, on_test

ROOT = Path(__file__).parents[2]


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
    for name, text in pages(load_results([ROOT / "reproduction" / "results"])).items():
        assert (ROOT / "docs" / name).read_text(encoding="utf-8") == text
