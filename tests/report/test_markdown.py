"""The tables as Markdown: the numbers of the page, names as text."""

import re

import pytest

from fopng.lab import report
from reproduction.claims import judge
from sample_runs import diverged, laboratory, result
from sweep_runs import held_out, on_test

HOSTILE = ["a|b", "**bold**", "<script>", "`tick`", "line\nbreak", "[x](y)", "# head", "\ud800"]


def rows(text):
    return [re.split(r" (?<!\\)\| ", line.strip("| ")) for line in text.splitlines() if line.startswith("|")]


def test_the_numbers_are_those_of_the_lines():
    runs = laboratory(["sgd", "ewc"])
    [panel] = report.summarise(runs)
    table = rows(report.report_markdown(runs, title="x", findings=[]))
    assert [row[0] for row in table[2:]] == [line.label for line in panel.lines]
    best = f"{100 * panel.lines[0].accuracy.mean:.2f}"
    assert table[2][1] == f"**{best}**"
    assert table[3][1] == f"{100 * panel.lines[1].accuracy.mean:.2f}"
    assert all(len(row) == len(table[0]) for row in table)


def test_lost_runs_and_families_are_said():
    runs = laboratory(["sgd", "joint"])
    text = report.report_markdown([diverged(runs[0]), *runs[1:]], title="x")
    assert "2 of 3, 1 diverged" in text
    assert "*References: all tasks learnt together*" in text


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_are_text(name):
    text = report.report_markdown([result(benchmark=name, method=name, settings={name: name})], title=name)
    table = rows(text)
    assert all(len(row) == len(table[0]) for row in table)
    before_commands = text.partition("<details>")[0]
    assert not re.search(r"(?<!\\)<|(?<!\\)`|(?<!\\)\[", before_commands)
    assert len([line for line in text.splitlines() if line.startswith("# ")]) == 1
    text.encode()


def test_commands_cannot_end_their_block():
    text = report.report_markdown([result(method="```\n# head")], title="x")
    fence = re.search(r"^(`+)sh$", text, re.MULTILINE).group(1)
    assert len(fence) > 3
    assert text.count(fence) == 2


def test_sweeps_and_ablations():
    runs = [held_out(0.5 + rate, settings={"lr": rate}) for rate in (0.1, 0.2, 0.4)]
    runs += [on_test(0.8, settings={"damping": damping}) for damping in (1e-6, 5e-4, 1e-2)]
    text = report.report_markdown(runs, title="x")
    assert "| fopng | 90.00 | lr=0.4 |" in text
    assert "| 0.0005 (the paper's) | 80.00 |" in text


def test_claims():
    runs = laboratory(["sgd", "ewc", "fopng", "ogd"])
    text = report.report_markdown(runs, title="x", findings=judge(runs))
    assert "## The paper's claims" in text
    assert re.search(r"\| does not hold \| matched protocol[^|]* \| [^|]+: -[0-9.]+ \(-[0-9.]+ to -[0-9.]+\)", text)


def test_no_results():
    assert "There are no results here yet." in report.report_markdown([], title="x")


def test_the_same_results_give_the_same_text(tmp_path):
    runs = laboratory(["sgd", "fopng"])
    report.write_markdown(tmp_path / "a.md", runs[::-1], title="x")
    assert (tmp_path / "a.md").read_text(encoding="utf-8") == report.report_markdown(runs, title="x")
