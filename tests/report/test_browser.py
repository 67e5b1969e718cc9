"""The page in Chromium: no complaint, no request, and what a reader does with it."""

import pytest

from browser import find_chromium
from fopng.lab.report.page import Extra, report_html
from sample_runs import diverged, laboratory, result
from sweep_runs import held_out, on_test, two_settings

pytestmark = pytest.mark.skipif(find_chromium() is None, reason="Chromium is not installed")

HOSTILE = [
    "<script>alert(1)</script>",
    "\"'><img src=x onerror=alert(1)>",
    "</style>{{ 7*7 }}",
    "long-" * 60,
    "ש \u202e ע",
]

DRAW_ALL = """(async () => {
  for (const each of document.querySelectorAll('details.folded')) each.open = true;
  for (const box of document.querySelectorAll('.chart')) {
    box.scrollIntoView();
    for (let tries = 0; !box.querySelector('svg') && tries < 100; tries++) await new Promise(done => setTimeout(done, 50));
  }
  return [...document.querySelectorAll('.chart')].filter(box => !box.querySelector('svg .mark-group')).map(box => box.id);
})()"""

OVER_THE_EDGE = """[...document.querySelectorAll('main *')].filter(e => {
  const box = e.getBoundingClientRect();
  return box.width && box.right > innerWidth + 1 && !e.closest('.scroll, .small figure, .bar, svg');
}).map(e => `${e.tagName} ${e.textContent.slice(0, 30)}`).slice(0, 5)"""


def everything():
    """A page with a bit of all: families, lost runs, two protocols, ten tasks, a sweep, ablations."""
    methods = ["sgd", "ewc", "fopng", "er", "joint", "unheard-of"]
    runs = laboratory(methods) + laboratory(methods, protocols=["printed"], tasks=10)
    runs = [diverged(run, 2) if run.config.method == "ewc" and run.config.seed else run for run in runs]
    runs += [held_out(0.5 + rate, settings={"lr": rate}) for rate in (0.1, 0.2, 0.4)] + two_settings()
    for setting, values in (("damping", [1e-5, 5e-4, 1e-2]), ("fisher_samples", [1, 16, None])):
        runs += [on_test(0.8, settings={setting: value}).named(f"ablation/{setting}") for value in values]
    return runs


@pytest.fixture
def open_page(browser, tmp_path):
    """Open the page of some results; fails when it complains, or asks for anything."""

    def opened(results, width=1400, scheme="light"):
        path = tmp_path / "page.html"
        path.write_text(report_html(results, title="Results"), encoding="utf-8")
        browser.resize(width)
        browser.prefer(scheme)
        browser.open(path)
        return browser

    yield opened
    browser.evaluate("0")
    assert browser.complaints == []
    assert [address for address in browser.requests if not address.startswith(("file:", "data:", "blob:"))] == []


def settled(browser):
    browser.evaluate("new Promise(done => setTimeout(done, 150))")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1400])
def test_every_chart_is_drawn_and_nothing_runs_over_the_edge(open_page, width, scheme):
    browser = open_page(everything(), width, scheme)
    assert browser.evaluate(DRAW_ALL) == []
    assert browser.evaluate(OVER_THE_EDGE) == []
    assert browser.evaluate("document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize("width", [390, 1400])
def test_hostile_names_are_text_and_stay_in_their_place(open_page, width):
    runs = laboratory(HOSTILE, seeds=2) + [
        result(benchmark=name, method=name, settings={name: name}) for name in HOSTILE
    ]
    runs += [held_out(0.5 + n / 10, method=name, settings={name: n}) for name in HOSTILE for n in range(2)]
    browser = open_page(runs, width)
    browser.evaluate(DRAW_ALL)
    assert browser.evaluate("document.querySelectorAll('img').length") == 0
    assert browser.evaluate("document.documentElement.scrollWidth") <= width


def test_a_script_in_markup_is_stopped_by_the_policy(browser, tmp_path):
    harm = "<script>window.harm = 1</script><img src=x onerror='window.harm = 1'><svg onload='window.harm = 1'></svg>"
    path = tmp_path / "page.html"
    html = report_html(laboratory(["sgd"]), title="Results", extras=[Extra("More", harm)])
    path.write_text(html, encoding="utf-8")
    browser.open(path)
    settled(browser)
    assert browser.evaluate("typeof window.harm") == "undefined"
    assert any("Content Security Policy" in str(complaint) for complaint in browser.complaints)
    path.write_text(html.replace("Content-Security-Policy", "x"), encoding="utf-8")
    browser.open(path)
    settled(browser)
    assert browser.evaluate("typeof window.harm") == "number", "the check would see it"


POINT = """(() => {
  const box = document.querySelector('#s0-accuracy');
  box.scrollIntoView({ block: 'center' });
  const at = box.querySelector('.mark-symbol path').getBoundingClientRect();
  return [at.x + at.width / 2, at.y + at.height / 2];
})()"""

FAINT = """(() => {
  const points = [...document.querySelectorAll('#s0-accuracy .mark-symbol path')];
  return points.filter(point => Number(point.getAttribute('opacity')) < 0.5).length / points.length;
})()"""


def test_a_click_isolates_a_method_in_charts_and_tables_and_another_shows_all(open_page):
    browser = open_page(laboratory(["sgd", "ewc"]))
    browser.evaluate(DRAW_ALL)
    for dimmed, faint in ((3, 0.5), (0, 0.0)):
        browser.click(*browser.evaluate(POINT))
        settled(browser)
        assert browser.evaluate(FAINT) == faint
        assert browser.evaluate("document.querySelectorAll('tr.dim').length") == (dimmed and 1)
    browser.evaluate("document.querySelector('[data-pick=ewc]').click()")
    settled(browser)
    assert browser.evaluate(FAINT) == 0.5
    assert browser.evaluate("document.querySelector('tr.dim').dataset.method") == "sgd"
    assert browser.evaluate("document.querySelector('[aria-pressed=true]').dataset.pick") == "ewc"


def test_hovering_shows_the_value(open_page):
    runs = laboratory(["sgd"])
    browser = open_page(runs)
    browser.evaluate(DRAW_ALL)
    browser.move(*browser.evaluate(POINT))
    settled(browser)
    words = browser.evaluate("document.querySelector('#vg-tooltip-element.visible').textContent")
    learnt = 100 * sum(run.average_accuracy[0] for run in runs) / 3
    assert "sgd" in words
    assert f"{learnt:.2f}" in words


def column(browser, number):
    return browser.evaluate(
        f"[...document.querySelector('table').tBodies[0].rows].map(row => row.cells[{number}].textContent.trim())"
    )


def test_tables_sort_and_what_is_no_number_stays_last(open_page):
    runs = laboratory(["sgd", "ewc", "ogd", "adam"])
    browser = open_page([diverged(run) if run.config.method == "ogd" else run for run in runs])
    browser.evaluate("document.querySelectorAll('table thead button')[0].focus()")
    browser.press("Enter", 13)
    assert column(browser, 0) == ["adam", "ewc", "ogd", "sgd"]
    for direction in ("descending", "ascending"):
        browser.evaluate("document.querySelectorAll('table thead button')[1].click()")
        *numbers, last = column(browser, 1)
        found = [float(text.split()[0].strip("★≈")) for text in numbers]
        assert found == sorted(found, reverse=direction == "descending")
        assert last == "–"
        assert browser.evaluate("document.querySelectorAll('table th')[1].ariaSort") == direction


def test_a_line_opens_its_runs_and_escape_goes_back_to_it(open_page):
    browser = open_page(laboratory(["sgd", "ewc"]))
    browser.evaluate("document.querySelector('[data-line=sgd]').focus()")
    browser.press("Enter", 13)
    words = browser.evaluate("document.querySelector('dialog[open]').textContent")
    assert "fopng run split-mnist sgd --seeds 3" in words
    assert all(run.config.key in words for run in laboratory(["sgd"]))
    browser.press("Escape", 27)
    assert browser.evaluate("document.querySelector('dialog[open]')") is None
    assert browser.evaluate("document.activeElement.dataset.line") == "sgd"


PAPER = "getComputedStyle(document.body).backgroundColor"


def test_dark_follows_the_system_and_the_switch(open_page):
    browser = open_page(laboratory(["sgd"]), scheme="dark")
    browser.evaluate(DRAW_ALL)
    ink = "document.querySelector('#s0-accuracy .role-axis-title text').getAttribute('fill')"
    assert (browser.evaluate(PAPER), browser.evaluate(ink)) == ("rgb(21, 24, 29)", "#e6edf3")
    browser.evaluate("document.getElementById('theme').click()")
    settled(browser)
    assert (browser.evaluate(PAPER), browser.evaluate(ink)) == ("rgb(255, 255, 255)", "#1f2328")
    browser.evaluate("localStorage.clear()")


CONTRAST = """(() => {
  const linear = v => v <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4;
  const light = colour => colour.match(/[\\d.]+/g).slice(0, 3)
    .reduce((sum, v, i) => sum + linear(v / 255) * [.2126, .7152, .0722][i], 0);
  const behind = e => {
    const colour = getComputedStyle(e).backgroundColor;
    return colour.endsWith(', 0)') ? behind(e.parentElement) : colour;
  };
  const ratio = (ink, paper) => (Math.max(ink, paper) + .05) / (Math.min(ink, paper) + .05);
  const all = document.querySelectorAll('p, h1, h2, h3, td, th, a, small, summary, .bar bdi, .chip, .mark');
  const shown = [...all].filter(e => e.textContent.trim());
  return Math.min(...shown.map(e => ratio(light(getComputedStyle(e).color), light(behind(e)))));
})()"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_words_stand_out_from_the_page(open_page, scheme):
    """The ratio that WCAG asks for."""
    assert open_page(everything(), scheme=scheme).evaluate(CONTRAST) >= 4.5


def test_what_a_screen_reader_is_told(open_page):
    browser = open_page(everything())
    tree = browser.send("Accessibility.getFullAXTree")["nodes"]
    spoken = {(n["role"]["value"], bool(n.get("name", {}).get("value", "").strip())) for n in tree if not n["ignored"]}
    for role in ("table", "button", "link", "region", "columnheader", "rowheader", "heading", "toolbar"):
        assert (role, True) in spoken
        assert (role, False) not in spoken


@pytest.mark.parametrize("results", [[], laboratory(["sgd"], seeds=1), [diverged(run) for run in laboratory(["sgd"])]])
def test_little_or_nothing_still_gives_a_page(open_page, results):
    browser = open_page(results, 390)
    assert browser.evaluate(DRAW_ALL) == []
    assert browser.evaluate("document.querySelector('h1').textContent") == "Results"
