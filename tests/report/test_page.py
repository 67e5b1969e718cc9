"""The page as text: whole, closed, the same every time, with any name as text."""

import base64
import hashlib
import html
import json
import re

import pytest

from fopng.lab.report.page import Extra, report_html, write_report
from sample_runs import laboratory, result
from sweep_runs import held_out, on_test

HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)>{{ 7 * 7 }}"


def scripts(page):
    return re.findall(r"<script>(.*?)</script>", page, re.DOTALL)


def data_of(page):
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)[1])


def test_only_the_scripts_of_the_page_may_run():
    page = report_html(laboratory(["sgd", "ewc"]), title="Results")
    [policy] = re.findall(r'<meta http-equiv="Content-Security-Policy" content="([^"]*)"', page)
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    digests = [base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts(page)]
    assert rules["script-src"].split() == [f"'sha256-{digest}'" for digest in digests]
    assert rules["default-src"] == "'none'"
    assert "unsafe-eval" not in policy


def test_nothing_comes_from_elsewhere():
    page = report_html(laboratory(["sgd", "ewc"]), title="Results")
    for script in scripts(page):
        page = page.replace(script, "")
    assert not re.findall(r'(?:src|href)="(?!#)[^"]*"', page)
    assert "@import" not in page
    assert "url(" not in page


def test_hostile_names_are_text_in_the_page_and_in_its_charts():
    runs = [result(benchmark=HOSTILE, method=HOSTILE, dataset=HOSTILE, settings={HOSTILE: HOSTILE})]
    runs += [held_out(0.5 + n / 10, method=HOSTILE, settings={HOSTILE: f"{HOSTILE}{n}"}) for n in range(2)]
    runs += [on_test(0.5, method=HOSTILE, settings={HOSTILE: n}).named(f"ablation/{HOSTILE}") for n in range(2)]
    page = report_html(runs, title=HOSTILE)
    charts = data_of(page)["charts"]
    for script in scripts(page):
        page = page.replace(script, "")
    assert len(re.findall(r"<script\b", page)) == 3
    assert "<img" not in page
    assert "49" not in re.search(r"<title>(.*?)</title>", page)[1]
    assert html.unescape(re.search(r"<title>(.*?)</title>", page)[1]) == HOSTILE
    assert any(HOSTILE in json.dumps(chart) for chart in charts.values())


def test_the_page_opens_with_its_answer():
    better = [on_test(0.9 + seed / 100, method="ewc", seed=seed) for seed in range(4)]
    worse = [on_test(0.7 + seed / 101, method="sgd", seed=seed) for seed in range(4)]
    page = report_html([*better, *worse], title="Results")
    answer = re.sub(r"<[^>]+>", " ", page[page.index("Who leads") : page.index('<section class="panel"')])
    words = " ".join(html.unescape(answer).split())
    assert "ewc 91.50 % 20.01 ± 0.02 points ahead of sgd ★ more than chance" in words
    assert "costs 4.50 s a run (sgd: 4.50 s), 0.00 MB" in words


def test_every_line_has_its_runs_and_their_command():
    runs = laboratory(["sgd", "ewc"], seeds=2)
    lines = data_of(report_html(runs, title="Results"))["lines"]["s0"]
    assert {row[1] for line in lines.values() for row in line["rows"]} == {run.config.key for run in runs}
    assert lines["sgd"]["command"].startswith("fopng run split-mnist sgd --seeds 2")


def test_a_caller_adds_sections():
    page = report_html(
        laboratory(["sgd"]), title="Results", extras=[Extra("The <b> claims", "<p>Three <em>hold</em>.</p>")]
    )
    assert "The &lt;b&gt; claims" in page
    assert "<p>Three <em>hold</em>.</p>" in page


def test_the_same_results_give_the_same_page(tmp_path):
    runs = laboratory(["sgd", "ewc"], seeds=2)
    write_report(tmp_path / "a.html", runs, title="Results")
    write_report(tmp_path / "b.html", runs[::-1], title="Results")
    assert (tmp_path / "a.html").read_bytes() == (tmp_path / "b.html").read_bytes()


@pytest.mark.parametrize("results", [[], laboratory(["sgd"], seeds=1)])
def test_little_or_nothing_still_gives_a_page(results):
    assert "<h1>" in report_html(results, title="Results")
