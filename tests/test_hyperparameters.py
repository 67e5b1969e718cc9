"""The table in the package is the table in the paper."""

import re
from pathlib import Path

import pytest

from fopng.lab.runs.hyperparameters import paper_benchmarks, paper_entry, paper_methods

PAPER = Path(__file__).parents[2] / "shared" / "paper" / "fopng.tex"

COLUMNS = ["adam", "sgd", "ewc", "fng", "ogd", "fopng", "fopng-prefisher"]

ROWS = {
    "Learning rate ($\\eta$)": "lr",
    "Grads per task": "gradients_per_task",
    "Batch size": "batch_size",
    "$\\lambda$": "damping",
    "$\\alpha$": "fisher_weight",
    "Max directions": "max_directions",
    "Fisher batch size": "fisher_samples",
    "\\# epochs/task": "epochs",
}


def printed_table(tex):
    """{(benchmark, method, name): text} from the LaTeX source, name by name."""
    table = tex[tex.index(r"\label{tab:hparams}") :].partition(r"\end{tabular}")[0]
    found, benchmark = {}, ""
    for line in table.splitlines():
        title = re.search(r"\\textit\{(.+?)\}", line)
        benchmark = title.group(1).lower() if title else benchmark
        label, *cells = (cell.strip() for cell in line.removesuffix("\\\\").split("&"))
        if len(cells) == len(COLUMNS) and label in ROWS:
            found |= {(benchmark, method, ROWS[label]): cell for method, cell in zip(COLUMNS, cells, strict=True)}
    return found


def entry(benchmark, method, name):
    """Our entry as the paper prints it; `absent` where we have none."""
    there = paper_entry(benchmark, method)
    if name in ("batch_size", "epochs"):
        return getattr(there, name)
    if name == "damping" and method == "ewc":
        name = "strength"
    return there.settings.get(name, "absent")


def test_every_entry_is_the_papers():
    if not PAPER.exists():
        pytest.skip("the paper's source is not beside this repository")
    printed = printed_table(PAPER.read_text(encoding="utf-8"))
    assert len(printed) == 5 * 7 * 8
    words = {"--": "absent", "full": None}
    expected = {place: words[text] if text in words else float(text) for place, text in printed.items()}
    assert {place: entry(*place) for place in printed} == expected


def test_nothing_is_in_our_table_that_is_not_in_the_papers():
    names = {"strength", *ROWS.values()} - {"batch_size", "epochs"}
    for benchmark in paper_benchmarks():
        for method in paper_methods():
            assert set(paper_entry(benchmark, method).settings) <= names


def test_the_benchmarks_and_methods_of_the_paper():
    assert sorted(paper_methods()) == sorted(COLUMNS)
    assert len(paper_benchmarks()) == 5


def test_first_task_rates_of_the_matched_protocol():
    rates = {benchmark: paper_entry(benchmark, "sgd").first_task_lr for benchmark in paper_benchmarks()}
    assert rates.pop("split-cifar10") == 1e-3
    assert set(rates.values()) == {1e-2}


@pytest.mark.parametrize("method", ["ong", "natural-ogd"])
def test_methods_without_a_column_step_like_fng_and_remember_like_ogd(method):
    fng, ogd = (paper_entry("split-mnist", lender).settings for lender in ("fng", "ogd"))
    assert paper_entry("split-mnist", method).settings == {**ogd, **fng}
    assert paper_entry("split-mnist", method).settings["gradients_per_task"] == 80
    assert paper_entry("split-mnist", method).settings["lr"] == fng["lr"] != ogd["lr"]


@pytest.mark.parametrize(
    ("benchmark", "method", "message"),
    [
        ("split-mnits", "sgd", "Did you mean 'split-mnist'"),
        ("borrowed", "sgd", "Expected a benchmark of the paper"),
        ("split-mnist", "fopgn", "Did you mean 'fopng'"),
        ("split-mnist", "epochs", "Expected a method"),
    ],
)
def test_names_that_are_not_there(benchmark, method, message):
    with pytest.raises(ValueError, match=message):
        paper_entry(benchmark, method)
