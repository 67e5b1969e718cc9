"""What the pages say and what the committed runs say, for the tests that hold the one to the other."""

import re
from functools import cache
from pathlib import Path

from fopng.lab.analysis.experiments import SELECTED_SETTINGS, sort_out
from fopng.lab.runs.findings import final_validation_accuracy
from fopng.lab.runs.scores import Estimate, paired_difference
from fopng.lab.runs.store import load_results

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


def on_test(runs, benchmark, method, **settings):
    """Of these runs those of a method on the test part of a benchmark, with these settings, by seed."""
    return {
        run.config.seed: run
        for run in runs
        if (run.config.benchmark, run.config.method, run.config.validation) == (benchmark, method, False)
        and settings.items() <= run.config.settings.items()
    }


def page(name):
    return (ROOT / name).read_text(encoding="utf-8")


def section(title, of="docs/kronecker-study.md"):
    """The part of a page under a heading."""
    return re.split(r"\n##+ ", page(of).partition(f"# {title}\n")[2])[0]


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


NAMED = {
    "`fopng-k`": "fopng-k",
    "Natural OGD": "natural-ogd",
    "Online EWC": "online-ewc",
    "FOPNG, printed form": "fopng",
    "PreFisher, printed form": "fopng-prefisher",
    "ER, *keeps samples": "er",
    "GEM, *keeps samples": "gem",
    "A-GEM, *keeps samples": "a-gem",
}


def chosen(cell):
    """The settings that a cell names: "lr 0.1, strength 30 (the smallest)"."""
    words = [part.split()[:2] for part in cell.split(", ")]
    return {name: float(value) for name, value in words}


def in_full(estimate):
    return f"{100 * estimate.mean:.2f} ± {100 * estimate.half_width(0.95):.2f}"
