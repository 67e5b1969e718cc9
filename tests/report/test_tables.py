"""The tables: the numbers that scipy gives, who leads and whether that is more than chance, any name as text."""

import io
import math

import pandas as pd
import pytest
from rich.console import Console
from scipy import stats

from fopng.lab.report.sections import sections_of
from fopng.lab.report.tables import (
    BEHIND,
    BEST,
    LEVEL_WITH,
    UNDECIDED,
    comparison_table,
    leads,
    report_markdown,
    standings,
    table_of,
    terminal_tables,
)
from sample_runs import diverged, laboratory, result
from sweep_runs import held_out, on_test


def rows(**scores):
    """Rows of one family: each line's score by seed."""
    return pd.DataFrame(
        [(label, seed, value) for label, values in scores.items() for seed, value in enumerate(values)],
        columns=["label", "seed", "final_accuracy"],
    )


def marks(**scores):
    return [mark for mark, _ in standings(rows(**scores)).values()]


CLEAR, CLOSE, LOW = [0.90, 0.91, 0.92, 0.90], [0.9, 0.92, 0.91, 0.9], [0.5, 0.52, 0.51, 0.49]


@pytest.mark.parametrize(
    ("scores", "expected"),
    [
        ({"a": CLEAR, "b": LOW}, [BEST, BEHIND]),
        ({"a": CLEAR, "b": CLOSE}, [LEVEL_WITH, LEVEL_WITH]),
        ({"a": CLEAR, "b": CLOSE, "c": LOW}, [LEVEL_WITH, LEVEL_WITH, BEHIND]),
        ({"a": [0.9], "b": [0.5]}, [UNDECIDED, UNDECIDED]),
        ({"a": CLEAR}, [UNDECIDED]),
        ({"a": [*CLEAR[:3], math.nan], "b": LOW}, [LEVEL_WITH, LEVEL_WITH]),
        ({"a": [math.nan] * 4, "b": LOW}, [UNDECIDED, UNDECIDED]),
        ({}, []),
    ],
    ids=["best", "level", "level of three", "one seed", "alone", "lost a run", "lost all", "nobody"],
)
def test_marks(scores, expected):
    """Whoever lost a run does not lead, and is not behind where its mean is higher."""
    assert marks(**scores) == expected


def test_marks_are_corrected_for_the_number_of_rivals():
    """One difference of p = 0.04 is told apart alone, and not among five such rivals."""
    base, rival = [0.90, 0.91, 0.92, 0.93, 0.94], [0.88, 0.91, 0.90, 0.92, 0.91]
    assert 0.01 < stats.ttest_rel(base, rival).pvalue < 0.05
    assert marks(a=base, b=rival) == [BEST, BEHIND]
    assert set(marks(a=base, **{f"b{n}": rival for n in range(5)})) == {LEVEL_WITH}


def test_the_numbers_of_a_comparison():
    runs = laboratory(["sgd", "ewc"], seeds=4)
    [section] = sections_of(runs)
    table = comparison_table(section)
    for row in table.rows:
        cells = dict(zip(table.columns, row.cells, strict=True))
        scores = [run.final_accuracy for run in section.lines[row.label]]
        low, high = stats.t.interval(0.95, 3, stats.tmean(scores), stats.sem(scores))
        assert cells["accuracy, %"].text == f"{100 * stats.tmean(scores):.2f}"
        assert cells["accuracy, %"].margin == f"± {50 * (high - low):.2f}"
        assert cells["seeds"].text == "4"
    assert [row.cells[1].value for row in table.rows] == sorted((r.cells[1].value for r in table.rows), reverse=True)


def test_the_answer_says_who_leads_each_family_by_how_much_and_what_it_costs():
    better = [on_test(0.9 + seed / 100, method="ewc", seed=seed) for seed in range(4)]
    worse = [on_test(0.7 + seed / 101, method="sgd", seed=seed) for seed in range(4)]
    others = [on_test(0.95, method=method, seed=seed) for method in ("er", "joint") for seed in range(4)]
    [section] = sections_of([*better, *worse, *others])
    found = {lead.family: lead for lead in leads(section)}
    assert sorted(found) == ["data", "none"]
    lead = found["none"]
    assert (lead.label, lead.mark, lead.next, lead.level) == ("ewc", BEST, "sgd", ())
    assert lead.ahead.mean == pytest.approx(0.2, abs=0.001)
    assert (lead.seconds, lead.plain_seconds, lead.memory) == (4.5, 4.5, 1024)
    assert (found["data"].next, found["data"].mark) == ("", UNDECIDED)


def test_what_is_lost_is_counted():
    runs = [*laboratory(["sgd"], seeds=3), diverged(result(method="sgd", seed=7, settings={"lr": 0.1}))]
    [section] = sections_of(runs)
    [row] = comparison_table(section).rows
    assert row.cells[-1].text == "3 of 4, 1 diverged"


def test_sweeps_and_ablations_have_their_tables():
    runs = [held_out(0.5 + rate, settings={"lr": rate}) for rate in (0.1, 0.2)]
    runs += [on_test(0.8, settings={"damping": d}).named("ablation/damping") for d in (1e-6, 5e-4)]
    sweep, ablation = sections_of(runs)
    assert [cell.text for cell in table_of(sweep)[0].rows[0].cells[:5]] == ["fopng", "70.00", "2", "0", "lr=0.2"]
    [table] = table_of(ablation)
    assert [row.cells[0].text for row in table.rows] == ["1e-06", "0.0005 (the paper's)"]


@pytest.mark.parametrize("name", ["a|b", "*x*", "`rm`", "<script>alert(1)</script>", "[red]x[/red]", "\ud800"])
def test_any_name_is_text(name):
    runs = [result(benchmark=name, method=name, settings={name: name})]
    text = report_markdown(runs, title=name)
    assert "<script" not in text.partition("```sh")[0]
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert len({line.count("|") for line in rows}) == 1
    console = Console(width=300, record=True, file=io.StringIO())
    for table in terminal_tables(runs):
        console.print(table)
    if name == "[red]x[/red]":
        assert name in console.export_text()


def test_markdown_has_every_section_with_its_commands():
    runs = laboratory(["sgd", "ewc"], protocols=["matched", "printed"], seeds=2)
    text = report_markdown(runs, title="Results")
    assert [line for line in text.splitlines() if line.startswith("## ")] == [
        "## split-mnist, matched protocol",
        "## split-mnist, printed protocol",
    ]
    assert text.count("fopng run split-mnist") == 4
    assert report_markdown(runs[::-1], title="Results") == text


def test_no_results_still_give_a_report():
    assert "no results" in report_markdown([], title="Results")
    assert terminal_tables([]) == []
