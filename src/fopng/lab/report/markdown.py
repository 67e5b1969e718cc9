"""The tables of a report as Markdown."""

import html
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from fopng.lab.report import words
from fopng.lab.report.claims import Finding, amount, interval
from fopng.lab.report.lines import Line
from fopng.lab.report.page import Section, sections_of
from fopng.lab.report.standing import Mark
from fopng.lab.report.summary import Panel, unique
from fopng.lab.report.variations import AblationGroup, Sweep
from fopng.lab.runs.result import RunResult
from fopng.lab.runs.scores import Estimate
from fopng.lab.storage import atomic

COLUMNS = (
    *("method", "accuracy, %", "± 68 %", "± 95 %", "behind the best, %", "when just learnt, %", "forgetting, %"),
    *("gradient removed, %", "seconds", "peak MB", "seeds"),
)

READING = (
    "Means over seeds, with half widths of Student's t intervals (95 % where it is not said). **Bold**: better than every "
    "other method of its family; ≈: not told apart from the best mean (paired over seeds, t tests at 95 % with Holm's "
    "correction)."
)


def write_markdown(path: Path, results: Iterable[RunResult], *, title: str, findings: Sequence[Finding] = ()) -> None:
    """Write the tables for these results, whole or not at all."""
    atomic.write_text(path, report_markdown(results, title=title, findings=findings))


def report_markdown(results: Iterable[RunResult], *, title: str, findings: Sequence[Finding] = ()) -> str:
    """Claims, comparisons, sweeps and ablations as tables, each with the commands behind it.

    Args:
        results: any results.
        title: the heading.
        findings: what became of claims that were judged by these results.
    """
    runs = unique(results)
    sections = sections_of(runs)
    blocks = [f"# {escaped(title)}"]
    decided = [finding for finding in findings if finding.evidence]
    if decided:
        blocks += ["## The paper's claims", _claims(decided)]
    for section in sections:
        blocks += _section(section)
    if not sections:
        blocks.append("There are no results here yet.")
    return words.encodable("\n\n".join(blocks) + "\n")


def _section(section: Section) -> list[str]:
    content = section.content
    kind = {"comparison": "", "sweep": "Sweep on ", "ablation": "Ablations on "}[section.kind]
    blocks = [
        f"## {kind}{escaped(content.title)}, {escaped(content.condition)}",
        escaped(" · ".join(content.details)),
    ]
    if isinstance(content, Panel):
        blocks += [_scores(content), READING]
    elif isinstance(content, Sweep):
        blocks.append(_choices(content))
    else:
        blocks += _answers(content)
    if section.shown_first:
        blocks.append(_commands(section.shown_first))
    return blocks


def _scores(panel: Panel) -> str:
    rows = []
    for family, lines in panel.families:
        if len(panel.families) > 1:
            rows.append([f"*{family.value}*", *[""] * (len(COLUMNS) - 1)])
        rows += [_score_row(line) for line in lines]
    return table(COLUMNS, rows)


def _score_row(line: Line) -> list[str]:
    mark = line.standing.mark if line.standing else None
    accuracy = words.percent(line.accuracy)
    accuracy = f"**{accuracy}**" if mark is Mark.BEST else f"{accuracy} ≈" if mark is Mark.LEVEL else accuracy
    behind = line.standing.behind if line.standing else Estimate.of([])
    missing = f" of {len(line.seeds)}" if line.accuracy.missing else ""
    diverged = f", {line.diverged} diverged" if line.diverged else ""
    return [
        escaped(line.label),
        accuracy,
        *(words.margin(line.accuracy, confidence) for confidence in (0.68, 0.95)),
        *(margined(estimate) for estimate in (behind, line.learning, line.forgetting, line.removed)),
        words.plain(line.seconds.mean),
        words.megabytes(line.memory.mean),
        f"{line.accuracy.count}{missing}{diverged}",
    ]


def _choices(sweep: Sweep) -> str:
    rows = []
    for choice in sweep.choices:
        response = choice.response
        chosen = "none" if response.chosen is None else words.listed(response.chosen.settings)
        accuracy = Estimate.of([]) if response.chosen is None else response.chosen.accuracy
        remarks = " ".join(response.notes)
        rows.append([escaped(text) for text in (response.method, margined(accuracy), chosen, remarks)])
    return table(("method", "held-out accuracy, %", "chosen", "remarks"), rows)


def _answers(group: AblationGroup) -> list[str]:
    found = []
    for variation in group.variations:
        papers = {words.shown(value) for value in variation.papers}
        rows = [
            [
                escaped(words.shown(answer.value)) + (" (the paper's)" if words.shown(answer.value) in papers else ""),
                margined(answer.accuracy),
                margined(answer.line.forgetting),
                str(answer.accuracy.count),
            ]
            for answer in variation.answers
        ]
        found += [
            f"### {escaped(variation.label)}: {escaped(variation.setting)}",
            table((escaped(variation.setting), "accuracy, %", "forgetting, %", "seeds"), rows),
        ]
    return found


def _claims(findings: Sequence[Finding]) -> str:
    rows = [
        [
            escaped(finding.claim),
            finding.verdict.value,
            escaped(finding.condition),
            "<br>".join(
                f"{escaped(one.words)}: {amount(one.estimate.mean, one.unit)} ({interval(one)})"
                for one in finding.evidence
            ),
        ]
        for finding in findings
    ]
    return table(("claim", "verdict", "under", "evidence"), rows)


def _commands(lines: Sequence[Line]) -> str:
    commands = "\n".join(line.command.replace("\n", " ") for line in lines)
    longest = max((len(ticks) for ticks in re.findall("`+", commands)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"<details><summary>Commands</summary>\n\n{fence}sh\n{commands}\n{fence}\n\n</details>"


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table whose first column is words and whose others are numbers."""
    lines = [columns, ["---", *["---:"] * (len(columns) - 1)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def margined(estimate: Estimate) -> str:
    """The mean as a percentage, with half its 95 % interval where there is one."""
    margin = f" {words.margin(estimate, 0.95)}" if estimate.count > 1 else ""
    return f"{words.percent(estimate)}{margin}"


def escaped(text: str) -> str:
    """A name as text: no markup, no table cell of its own, no line of its own."""
    marked = re.sub(r"([\\*_{}\[\]#$~!])", r"\\\1", " ".join(words.encodable(text).split()))
    return html.escape(marked, quote=False).replace("|", "&#124;").replace("`", "&#96;")
