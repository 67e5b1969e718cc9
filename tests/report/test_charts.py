"""Charts: one function and one entry each, held to the schema of Vega-Lite, the same bytes every time."""

import json
import xml.etree.ElementTree
from dataclasses import replace

import altair as alt
import pytest

from fopng.lab.report import charts, files
from fopng.lab.report.charts import CHARTS, Chart, charts_of, pareto_fronts
from fopng.lab.report.files import DARK, files_of, write_figures
from fopng.lab.report.page import report_html
from fopng.lab.report.sections import sections_of
from sample_runs import diverged, laboratory, result
from sweep_runs import held_out, on_test, two_settings

SIGNATURES = {"svg": b"<svg", "png": b"\x89PNG\r\n", "pdf": b"%PDF"}


def everything():
    runs = laboratory(["sgd", "ewc", "er", "fopng", "joint", "unheard-of"]) + two_settings()
    runs += [held_out(0.5 + rate, settings={"lr": rate}) for rate in (0.1, 0.2, 0.4)]
    for setting, values in (("damping", [1e-5, 5e-4, 1e-2]), ("fisher_samples", [1, 16, None])):
        runs += [on_test(0.8, settings={setting: value}).named(f"ablation/{setting}") for value in values]
    return runs


def drawn(results):
    return [chart for section in sections_of(results) for chart in charts_of(section)]


def rows_of(specification):
    return [row for rows in specification["datasets"].values() for row in rows]


def test_every_chart_is_valid_vega_lite_and_becomes_a_file(monkeypatch):
    monkeypatch.setattr(charts, "CHECKED", True)
    found = drawn(everything())
    assert {chart.name for chart in found} == {
        *("accuracy", "learning", "seconds", "memory", "lost", "measured-removed-fraction", "matrices"),
        *("response-lr", "response-strength", "pairs-ewc", "response-damping", "response-fisher-samples"),
    }
    for chart in found:
        xml.etree.ElementTree.fromstring(files.drawn(chart.specification, "svg"))


def accuracy_over_time(rows):
    return alt.Chart(rows).mark_point().encode(x="seconds:Q", y="final_accuracy:Q")


def test_a_chart_is_one_function_and_one_entry(monkeypatch):
    """It is on the page, and a file, by being in the list."""
    entry = Chart("mine", "Accuracy over time", "comparison", lambda section: {"": section.frame}, accuracy_over_time)
    monkeypatch.setattr(charts, "CHARTS", [*CHARTS, entry])
    runs = laboratory(["sgd"], seeds=2)
    assert '"s0-mine":' in report_html(runs, title="Results")
    assert "01-split-mnist-matched-protocol-mine.svg" in dict(files_of(runs, "svg"))


@pytest.mark.parametrize("kind", SIGNATURES)
def test_files(tmp_path, kind):
    written = write_figures(tmp_path / "a" / "b", laboratory(["fopng"], seeds=2), kind=kind)
    names = ("accuracy", "learning", "seconds", "memory", "lost", "measured-removed-fraction", "matrices")
    assert [path.name for path in written] == [f"01-split-mnist-matched-protocol-{name}.{kind}" for name in names]
    assert all(path.read_bytes().startswith(SIGNATURES[kind]) for path in written)


def test_the_same_results_give_the_same_files():
    runs = laboratory(["sgd", "ewc"], seeds=2)
    assert list(files_of(runs, "svg")) == list(files_of(runs[::-1], "svg"))


def test_drawings_follow_light_and_dark():
    [content, *_] = [content.decode() for _, content in files_of(laboratory(["sgd"], seeds=1), "svg")]
    assert "prefers-color-scheme: dark" in content
    assert DARK["ink"] in content


def test_the_numbers_of_a_curve():
    runs = laboratory(["sgd"], seeds=3)
    [curve] = [chart for chart in drawn(runs) if chart.name == "accuracy"]
    means = [100 * sum(run.average_accuracy[task] for run in runs) / 3 for task in range(5)]
    assert [row["mean"] for row in rows_of(curve.specification)] == pytest.approx(means, abs=1e-3)


def steered(tolerance, measured, **more):
    """Two runs with this tolerance, and what they measured after three tasks."""
    runs = laboratory(["ewc"], seeds=2, tasks=3, settings={"tolerance": tolerance}, **more)
    lost = {"lost_measured": (None, measured, 2 * measured), "lost_worst": (None, measured, 3 * measured)}
    return [replace(run, measured=lost) for run in runs]


def test_what_was_asked_measured_and_really_lost():
    plain = laboratory(["sgd", "joint"], seeds=2, tasks=3)
    together = [replace(run, lost=[[None] * 3, [None] * 3, [0.0] * 3]) for run in plain if run.config.method == "joint"]
    runs = steered(0.1, 0.05) + steered(None, 0.5) + plain[:2] + together
    charts = {chart.name: chart for chart in drawn(runs)}
    assert not {"measured-lost-measured", "measured-lost-worst"} & set(charts)
    chart = charts["lost"]
    found = {}
    for row in rows_of(chart.specification):
        found.setdefault(row["label"], {}).setdefault((row["what"], row["of"]), []).append((row["task"], row["mean"]))
    lost = {("really lost", "mean"): [(2, 0.02), (3, 0.03)], ("really lost", "worst"): [(2, 0.02), (3, 0.04)]}
    assert found["sgd"] == lost
    assert found["ewc (tolerance=0.1)"] == {
        **lost,
        ("measured", "mean"): [(2, 0.05), (3, 0.1)],
        ("measured", "worst"): [(2, 0.05), (3, 0.15)],
        ("asked", "mean"): [(2, 0.1), (3, 0.1)],
    }
    assert ("asked", "mean") not in found["ewc (tolerance=all)"]
    assert "joint" not in found


@pytest.mark.parametrize("lost", [None, [[0.0, None]], [[0.0, None], [None, 0.0]]])
def test_results_that_do_not_say_what_was_lost_have_no_such_chart(lost):
    runs = [replace(run, lost=lost) for run in laboratory(["sgd"], tasks=2, settings={"tolerance": 0.1})]
    assert "lost" not in {chart.name for chart in drawn(runs)}


def test_the_front_joins_those_that_no_other_beats():
    import pandas as pd

    spots = pd.DataFrame(
        [("a", "none", 1, 90), ("b", "none", 2, 89), ("c", "none", 3, 95), ("d", "data", 0, 99)],
        columns=["label", "family", "mean", "mean_learnt"],
    )
    assert list(pareto_fronts(spots)["label"]) == ["a", "c"]


def test_pairs_frame_the_choice_and_bracket_what_was_refused():
    [grid] = [chart for chart in drawn(two_settings()) if chart.name == "pairs-ewc"]
    cells = rows_of(grid.specification)
    assert [cell["text"] for cell in cells if cell["chosen"]] == ["71.0"]
    assert sum(cell["text"].startswith("(") for cell in cells) == 2


def test_every_chart_can_be_isolated():
    """Whatever hides behind a method says whose it is, and the switch is there."""
    for chart in drawn(everything()):
        assert chart.specification["params"] == [{"name": "isolated", "value": ""}]
        assert all("method" in row for row in rows_of(chart.specification)), chart.name
        assert "isolated" in json.dumps(
            chart.specification["layer" if "layer" in chart.specification else "encoding"]
            if "facet" not in chart.specification
            else chart.specification["spec"]
        )


@pytest.mark.parametrize(
    "name", ["$\\frac{", "_x", "\ud800", "a b<b>&../../up", "漢字ש" * 40, "<script>alert(1)</script>"]
)
def test_any_name_can_be_drawn(tmp_path, name):
    runs = [
        result(benchmark=name, method=name),
        held_out(0.5, method=name, settings={name: 1}),
        held_out(0.6, method=name, settings={name: 2}),
    ]
    for path in write_figures(tmp_path / "here", runs, kind="svg"):
        assert path.parent == tmp_path / "here"
        assert "<script" not in path.read_text(encoding="utf-8")


@pytest.mark.parametrize("results", [[], [diverged(run) for run in laboratory(["sgd"])], laboratory(["sgd"], tasks=1)])
def test_little_or_nothing(results):
    assert bool(list(files_of(results, "svg"))) == bool(results)
