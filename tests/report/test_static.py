"""Figures as files: all of them, whole, the same every time, whatever the names."""

import re
import sys
import xml.etree.ElementTree

import pytest

from fopng.lab import report
from fopng.lab.report.figures import learning_scatter
from fopng.lab.report.looks import looks_of
from fopng.lab.report.plots import plot
from fopng.lab.report.summary import panel_of
from sample_runs import diverged, laboratory, result
from sweep_runs import held_out, on_test, two_settings

SIGNATURES = {"png": b"\x89PNG\r\n", "svg": b"<?xml"}


def names(paths):
    return [path.stem for path in paths]


@pytest.mark.parametrize("kind", ["png", "svg"])
def test_every_figure_is_a_file(tmp_path, kind):
    written = report.write_figures(tmp_path / "a" / "b", laboratory(["sgd", "fopng"], seeds=2), kind=kind)
    start = "01-split-mnist-matched-protocol"
    assert names(written) == [
        f"{start}-{name}" for name in ("accuracy", "learning", "removed", "seconds", "memory", "matrices")
    ]
    assert all(path.read_bytes().startswith(SIGNATURES[kind]) for path in written)


@pytest.mark.parametrize(
    ("library", "write"),
    [
        ("matplotlib", lambda folder: report.write_figures(folder, [], kind="png")),
        ("matplotlib", lambda folder: report.write_pdf(folder / "report.pdf", [])),
        ("jinja2", lambda folder: report.write_report(folder / "report.html", [], title="none")),
    ],
)
def test_without_a_library_the_extra_is_named(tmp_path, monkeypatch, library, write):
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(ModuleNotFoundError, match=rf"package {library} for .* got none\. .* 'fopng\[lab\]'"):
        write(tmp_path)


def test_every_number_has_its_unit(tmp_path):
    written = report.write_figures(tmp_path, laboratory(["sgd", "fopng"], seeds=2), kind="svg")
    texts = {path.stem.rpartition("-")[2]: path.read_text(encoding="utf-8") for path in written}
    axes = {"accuracy": "mean accuracy, %", "learning": "forgetting, %", "removed": "removed, %"}
    for name, unit in {**axes, "seconds": "seconds", "memory": "megabytes"}.items():
        assert f">{unit}</text>" in texts[name], name


def test_whiskers_are_drawn_whole_and_inside_the_axes():
    panel = panel_of(laboratory(["sgd", "ewc", "fopng"]), "matched protocol")
    chart = learning_scatter(panel)
    [axes] = plot(chart, looks_of([line.label for line in panel.lines])).axes
    drawn = [list(zip(*line.get_data(), strict=True)) for line in axes.lines]
    for spot in chart.spots:
        across, up = spot.ends(chart.confidence)
        x, y = chart.x.place(100 * spot.x.mean), chart.y.place(100 * spot.y.mean)
        for whisker in ([(chart.x.place(end), y) for end in across], [(x, chart.y.place(end)) for end in up]):
            assert whisker in drawn
            assert all(0 < place < 1 for point in whisker for place in point)


def test_sweeps_and_ablations_are_drawn(tmp_path):
    runs = [held_out(0.5 + rate, settings={"lr": rate}) for rate in (0.1, 0.2, 0.4)]
    runs += [on_test(0.8, settings={"damping": damping}) for damping in (1e-6, 5e-4, 1e-2)]
    written = report.write_figures(tmp_path, runs, kind="svg")
    assert {name[3:] for name in names(written) if "response" in name} == {
        "split-mnist-matched-protocol-response-lr",
        "split-mnist-matched-protocol-response-damping",
    }


def test_two_settings_together_are_drawn(tmp_path):
    [path] = [path for path in report.write_figures(tmp_path, two_settings(), kind="svg") if "grids" in path.name]
    drawn = path.read_text()
    for text in ("ewc", ">lr<", ">strength<", ">0.01<", ">400<", ">71<"):
        assert text in drawn


def test_heat_maps_say_which_settings_are_kept(tmp_path):
    points = [(r, s, e) for r in (0.1, 0.2, 0.3) for s in (10, 30, 50) for e in (0, 0.5)]
    runs = [held_out(0.5 + r, settings={"lr": r, "strength": s, "evenness": e}) for r, s, e in points]
    [path] = [path for path in report.write_figures(tmp_path, runs, kind="svg") if "grids" in path.name]
    assert set(re.findall(r"\(evenness=([\d.]+)\)", path.read_text())) == {"0", "0.5"}


def test_the_same_results_give_the_same_files(tmp_path):
    runs = laboratory(["sgd"], seeds=2)
    for folder, some in (("a", runs), ("b", runs[::-1])):
        report.write_figures(tmp_path / folder, some, kind="svg")
        report.write_pdf(tmp_path / folder / "all.pdf", some)
    for path in (tmp_path / "a").iterdir():
        assert path.read_bytes() == (tmp_path / "b" / path.name).read_bytes(), path.name


def test_a_document_has_a_page_a_figure(tmp_path):
    report.write_pdf(tmp_path / "all.pdf", laboratory(["sgd"], seeds=2))
    content = (tmp_path / "all.pdf").read_bytes()
    assert content.startswith(b"%PDF")
    assert len(re.findall(rb"/Type /Page\b", content)) == 6


@pytest.mark.parametrize("name", ["$\\frac{", "_x", "\ud800", "a\nb\0c<b>&../../up", "漢字ש" * 40])
def test_any_name_can_be_drawn(tmp_path, name):
    [path, *_] = report.write_figures(tmp_path / "here", [result(benchmark=name, method=name)], kind="svg")
    assert path.parent == tmp_path / "here"
    text = path.read_text(encoding="utf-8")
    xml.etree.ElementTree.fromstring(text)
    if name in ("$\\frac{", "_x"):
        assert name in text


@pytest.mark.parametrize("results", [[], [diverged(run) for run in laboratory(["sgd"])], laboratory(["sgd"], tasks=1)])
def test_little_or_nothing(tmp_path, results):
    assert bool(report.write_figures(tmp_path, results, kind="svg")) == bool(results)
    report.write_pdf(tmp_path / "all.pdf", results)
    assert (tmp_path / "all.pdf").exists()
