"""The page in Chromium: no errors, no requests, everything can be used, nothing lies on anything else."""

import re
import time
import xml.etree.ElementTree

import pytest

from browser import find_chromium
from fopng.lab import report
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

VISIBLE = "[...document.querySelectorAll({selector!r})].filter(e => e.getClientRects().length).length"

OVERLAPS = """(() => {
  const boxes = elements => elements.map(e => [e, e.getBoundingClientRect()]).filter(([, b]) => b.width && b.height);
  const meet = (a, b) => a.left < b.right - 1 && b.left < a.right - 1 && a.top < b.bottom - 1 && b.top < a.bottom - 1;
  const found = [];
  const check = (elements, what) => {
    const all = boxes(elements);
    all.forEach(([e, a], i) => all.slice(i + 1).forEach(([f, b]) => {
      const words = [e, f].map(each => each.textContent.slice(0, 30)).join(" / ");
      if (!e.contains(f) && !f.contains(e) && meet(a, b)) found.push(`${what}: ${words}`);
    }));
  };
  check([...document.querySelectorAll("header, .panel, footer")].filter(e => !e.closest("dialog")), "sections");
  for (const panel of document.querySelectorAll(".panel")) check([...panel.children], "blocks");
  for (const grid of document.querySelectorAll(".figures, .bars, .heats")) check([...grid.children], "figures");
  for (const figure of document.querySelectorAll("figure")) check([...figure.children], "in a figure");
  for (const list of document.querySelectorAll(".legend, .options, .contents, figcaption")) check([...list.children], "items");
  for (const svg of document.querySelectorAll("svg.chart")) check([...svg.querySelectorAll("text")], "words");
  for (const row of document.querySelectorAll("tr")) check([...row.cells], "cells");
  return found.slice(0, 5);
})()"""


def everything():
    """A page with a bit of all: families, lost runs, a sweep, ablations, ten tasks, two protocols."""
    methods = ["sgd", "ewc", "ogd", "fopng", "fopng-prefisher", "joint", "unheard-of"]
    runs = laboratory(methods) + laboratory(methods, protocols=["printed"], tasks=10)
    runs = [diverged(run, 2) if run.config.method == "ewc" and run.config.seed else run for run in runs]
    runs += [held_out(0.5 + rate, seed=seed, settings={"lr": rate}) for rate in (0.1, 0.2, 0.4) for seed in (8, 9)]
    runs += two_settings() + two_settings("fopng-k", rates=(1e-4, 1e-3, 5e-3, 1e-2, 0.1, 0.3), strengths=(3, 30, 300))
    values = [("damping", [1e-5, 1e-4, 5e-4, 1e-3, 1e-2]), ("fisher_samples", [1, 16, None])]
    runs += [
        on_test(0.8 + 0.01 * seed, seed=seed, benchmark="rotated-mnist", settings={name: value})
        for name, some in values
        for value in some
        for seed in range(2)
    ]
    return runs


@pytest.fixture
def open_page(browser, tmp_path):
    """Open the page of some results; fails when it complains or asks for anything."""

    def opened(results, width=1600):
        path = tmp_path / "page.html"
        report.write_report(path, results, title="Results")
        browser.resize(width)
        browser.open(path)
        return browser

    yield opened
    browser.evaluate("0")
    assert browser.complaints == []
    # What is saved goes through addresses that stay inside the browser.
    outside = [address for address in browser.requests if not address.startswith(("blob:", "data:"))]
    assert len(outside) <= 1
    assert all(address.startswith("file:") for address in outside)


def visible(browser, selector):
    return browser.evaluate(VISIBLE.format(selector=selector))


def column(browser, number):
    return browser.evaluate(
        "[...document.querySelector('table.scores').tBodies[0].rows].filter(r => r.cells.length > 1)"
        f".map(r => r.cells[{number}].textContent.trim())"
    )


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [400, 900, 1600])
def test_nothing_overlaps_nor_runs_over_the_edge(open_page, width, scheme):
    browser = open_page(everything(), width)
    browser.prefer(scheme)
    browser.evaluate("document.querySelectorAll('details').forEach(d => { d.open = true; })")
    assert browser.evaluate(OVERLAPS) == []
    assert browser.evaluate("document.documentElement.scrollWidth") <= width
    assert browser.evaluate(
        "[...document.querySelectorAll('svg.chart text')].filter(t => { const a = t.getBoundingClientRect(),"
        " b = t.ownerSVGElement.getBoundingClientRect(); return a.width && (a.left < b.left - 1 || a.right > b.right + 1); })"
        ".map(t => t.textContent)"
    ) == []  # fmt: skip


@pytest.mark.parametrize("width", [400, 1600])
def test_hostile_names_are_text_and_stay_in_their_place(open_page, width):
    results = laboratory(HOSTILE) + [
        result(benchmark=name, method=name, dataset=name, scenario=name, settings={name: name}) for name in HOSTILE
    ]
    browser = open_page(results, width)
    assert browser.evaluate("document.querySelectorAll('img, script:not(:last-of-type)').length") == 0
    assert browser.evaluate("document.documentElement.scrollWidth") <= width
    assert browser.evaluate(OVERLAPS) == []


def test_methods_are_switched_off_and_on(open_page):
    browser = open_page(laboratory(["sgd", "ewc"]))
    number = browser.evaluate(
        "[...document.querySelectorAll('.switches label')].find(l => l.textContent === 'sgd').firstChild.id"
    )[1:]
    shown = f"[data-m='{number}']"
    before, others = visible(browser, shown), visible(browser, f"[data-m]:not({shown})")
    assert before > 4
    browser.evaluate(f"document.querySelector('.legend label[for=m{number}]').click()")
    assert (visible(browser, shown), visible(browser, f"[data-m]:not({shown})")) == (0, others)
    browser.evaluate(f"document.getElementById('m{number}').click()")
    assert visible(browser, shown) == before
    for word, expected in (("none", 0), ("all", before + others)):
        browser.evaluate(
            f"[...document.querySelectorAll('.options button')].find(b => b.textContent === {word!r}).click()"
        )
        assert visible(browser, "[data-m]") == expected


def test_the_axis_fits_the_lines_that_are_switched_on(open_page):
    runs = laboratory(["sgd", "ewc"], tasks=2)
    low = [result([[0.2, None], [0.1, 0.12]], method="adam", seed=seed) for seed in range(2)]
    browser = open_page([*low, *runs])
    chart = "document.querySelector('#p0-accuracy svg.chart')"
    words = f"[...{chart}.querySelectorAll('text.y')].map(t => [+t.textContent, +t.getAttribute('y') - 4.5])"
    marker = f"{chart}.querySelector('.s[data-m=\"2\"] .k').getAttribute('d')"

    def axis():
        """The numbers beside the axis, and the value at which the first point of sgd is drawn."""
        (first, at_first), *_, (last, at_last) = ticks = browser.evaluate(words)
        height = float(re.match(r"M[\d.]+,([\d.]+)", browser.evaluate(marker)).group(1))
        return [number for number, _ in ticks], first + (height - at_first) / (at_last - at_first) * (last - first)

    learnt = [100 * run.accuracy[0][0] for run in runs if run.config.method == "sgd"]
    expected = pytest.approx(sum(learnt) / 3, abs=0.2)
    before = axis()
    assert (before[0][0] <= 20, before[1]) == (True, expected)
    browser.evaluate("document.getElementById('m0').click()")
    fitted = axis()
    assert (fitted[0][0] > 80, fitted[1]) == (True, expected)
    assert fitted[0] == sorted(set(fitted[0]))
    assert browser.evaluate(OVERLAPS) == []
    for switch in ("m1", "m2", "m0", "m1", "m2"):
        browser.evaluate(f"document.getElementById('{switch}').click()")
    assert axis() == before


def test_tables_are_sorted_by_mouse_and_by_keyboard(open_page):
    browser = open_page(laboratory(["sgd", "ewc", "ogd", "adam"]))
    button = "document.querySelectorAll('table.scores thead button')[{}]"
    heading = "document.querySelectorAll('table.scores thead th')[{}].ariaSort"
    accuracies = [float(text.split()[0].strip("★≈")) for text in column(browser, 1)]
    assert accuracies == sorted(accuracies, reverse=True)
    browser.evaluate(f"{button.format(0)}.click()")
    assert column(browser, 0) == sorted(column(browser, 0))
    assert browser.evaluate(heading.format(0)) == "ascending"
    browser.evaluate(f"{button.format(2)}.focus()")
    for direction in ("descending", "ascending"):
        browser.press("Enter", 13)
        forgotten = [float(text.split()[0]) for text in column(browser, 2)]
        assert forgotten == sorted(forgotten, reverse=direction == "descending")
        assert browser.evaluate(heading.format(2)) == direction
        assert browser.evaluate(heading.format(0)) == "none"


def test_what_is_no_number_is_sorted_last(open_page):
    runs = laboratory(["sgd", "ewc", "fopng"])
    browser = open_page([diverged(run) if run.config.method == "ewc" else run for run in runs])
    for _ in range(2):
        browser.evaluate("document.querySelectorAll('table.scores thead button')[1].click()")
        assert column(browser, 1)[-1] == "–"


def test_a_number_opens_its_runs_and_escape_goes_back_to_it(open_page):
    browser = open_page(laboratory(["sgd", "ewc"]))
    browser.evaluate("document.querySelector('table.scores td a').focus()")
    browser.press("Enter", 13)
    assert browser.evaluate("document.querySelector('dialog').open")
    words = browser.evaluate("document.querySelector('dialog').textContent")
    assert "fopng run split-mnist sgd --seeds 3" in words
    assert all(run.config.key in words for run in laboratory(["sgd"]))
    browser.evaluate("document.querySelector('dialog thead button').click()")
    assert browser.evaluate("document.querySelector('dialog th').ariaSort") == "descending"
    browser.press("Escape", 27)
    assert not browser.evaluate("document.querySelector('dialog').open")
    assert browser.evaluate("document.activeElement.closest('tr') !== null")
    browser.evaluate("document.querySelector('.chart .s .k').dispatchEvent(new MouseEvent('click', { bubbles: true }))")
    assert browser.evaluate("document.querySelector('dialog').open")


def saved(browser, kind, figure):
    browser.evaluate(
        f"[...document.querySelectorAll('#{figure} .save button')].find(b => b.textContent === {kind!r}).click()"
    )
    path = browser.downloads / f"{figure}.{kind.lower()}"
    deadline = time.monotonic() + 20
    while not (path.exists() and path.stat().st_size) and time.monotonic() < deadline:
        browser.evaluate("new Promise(done => setTimeout(done, 50))")
    return path.read_bytes()


def test_figures_are_saved_as_they_are_shown(open_page):
    browser = open_page(laboratory(["sgd", "ewc"]))
    browser.allow_downloads()
    browser.evaluate("document.getElementById('m0').click()")
    drawing = saved(browser, "SVG", "p0-accuracy").decode()
    assert xml.etree.ElementTree.fromstring(drawing).tag.endswith("svg")
    assert "<title>sgd" in drawing
    assert "<title>ewc" not in drawing
    assert re.search(r'<text class="n"[^>]*>sgd</text>', drawing)
    assert not re.search(r'<text class="n"[^>]*>ewc</text>', drawing)
    for figure in ("p0-accuracy", "p0-matrix-1"):
        assert saved(browser, "PNG", figure).startswith(b"\x89PNG")
    assert "<rect" in saved(browser, "SVG", "p0-matrix-2").decode()
    for figure, unit in (("p0-seconds", "seconds"), ("p0-memory", "megabytes")):
        assert re.search(rf"<text[^>]*>{unit}</text>", saved(browser, "SVG", figure).decode())


def test_the_page_is_whole_without_scripts(open_page, browser):
    browser.send("Emulation.setScriptExecutionDisabled", value=True)
    try:
        open_page(everything())
        assert visible(browser, "svg.chart") > 10
        assert visible(browser, "table.scores tbody tr") > 10
        assert visible(browser, ".save, thead button") == 0
        browser.evaluate("document.getElementById('m0').checked = false")
        assert visible(browser, "[data-m='0']") == 0
    finally:
        browser.send("Emulation.setScriptExecutionDisabled", value=False)


CONTRAST = """(() => {
  const rgb = text => text.match(/[\\d.]+/g).slice(0, 3).map(Number);
  const linear = v => v <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4;
  const light = colour => rgb(colour).reduce((sum, v, i) => sum + linear(v / 255) * [.2126, .7152, .0722][i], 0);
  const paper = light(getComputedStyle(document.body).backgroundColor);
  const ratio = colour => {
    const ink = light(colour);
    return (Math.max(ink, paper) + .05) / (Math.min(ink, paper) + .05);
  };
  const least = (selector, part) =>
    Math.min(...[...document.querySelectorAll(selector)].map(e => ratio(getComputedStyle(e)[part])));
  return [least("p, h1, h2, h3, td:not([class^=h]), th, a:not(.heat a), summary, legend, small", "color"),
    least(".chart text", "fill"), least(".chart .l", "stroke")];
})()"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_words_and_lines_stand_out_from_the_page(open_page, scheme):
    """The ratios that WCAG asks for: 4.5 for words, 3 for what is drawn."""
    browser = open_page(everything())
    browser.prefer(scheme)
    words, labels, strokes = browser.evaluate(CONTRAST)
    assert min(words, labels) >= 4.5
    assert strokes >= 3


def test_what_a_screen_reader_is_told(open_page):
    browser = open_page(everything())
    tree = browser.send("Accessibility.getFullAXTree")["nodes"]
    spoken = [
        (node["role"]["value"], node.get("name", {}).get("value", "").strip()) for node in tree if not node["ignored"]
    ]
    named = ("image", "table", "button", "link", "checkbox", "region", "columnheader", "rowheader", "heading", "group")
    assert {role for role, name in spoken if role in named and not name} <= {"group"}
    assert {role for role, _ in spoken} >= {"image", "table", "button", "link", "checkbox", "region", "heading", "main"}
    levels = browser.evaluate(
        "[...document.querySelectorAll('h1, h2, h3, h4')].filter(h => !h.closest('dialog')).map(h => +h.tagName[1])"
    )
    assert levels[0] == 1
    assert levels.count(1) == 1


def test_the_keyboard_reaches_everything_in_the_order_of_the_page(open_page):
    browser = open_page(laboratory(["sgd", "ewc"]))
    wanted = browser.evaluate(
        "[...document.querySelectorAll('a[href], button, input, summary, [tabindex]')].filter(e => e.checkVisibility())"
        ".map(e => { e.dataset.place = ++window.places || (window.places = 1); return e.dataset.place; })"
    )
    reached = []
    for _ in wanted:
        browser.press("Tab", 9)
        reached.append(browser.evaluate("document.activeElement.dataset.place"))
    assert reached == wanted


SHADES = """(() => {
  const context = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const linear = v => v <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4;
  const light = colour => {
    context.fillStyle = colour;
    context.fillRect(0, 0, 1, 1);
    return [...context.getImageData(0, 0, 1, 1).data].slice(0, 3)
      .reduce((sum, v, i) => sum + linear(v / 255) * [.2126, .7152, .0722][i], 0);
  };
  return [...document.querySelectorAll(".heat td[class]")].map(cell => {
    const ink = getComputedStyle(cell.querySelector("a") || cell).color;
    const pair = [light(ink), light(getComputedStyle(cell).backgroundColor)];
    return [cell.classList[0], (Math.max(...pair) + .05) / (Math.min(...pair) + .05)];
  });
})()"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_numbers_of_a_matrix_stand_out_from_their_shades(open_page, scheme):
    """Those of two settings together too: their links have the colour of their cell."""
    matrices = [result([[level / 20]], method=f"m{level:02}") for level in range(21)]
    grids = two_settings("fopng-k", rates=(1e-4, 1e-3, 1e-2, 0.1, 0.2, 0.3), strengths=(1, 100, 300))
    for results in (matrices, [*matrices, *grids]):
        browser = open_page(results)
        browser.prefer(scheme)
        found = browser.evaluate(SHADES)
        assert len({shade for shade, _ in found}) == 11
        assert min(ratio for _, ratio in found) >= 4.5, found
    assert browser.evaluate("document.querySelectorAll('.grids .heat td a').length") == len(grids)


@pytest.mark.parametrize("results", [[], laboratory(["sgd"], seeds=1), [diverged(run) for run in laboratory(["sgd"])]])
def test_little_or_nothing_still_gives_a_page(open_page, results):
    browser = open_page(results, 400)
    assert browser.evaluate("document.querySelector('h1').textContent") == "Results"
    assert browser.evaluate(OVERLAPS) == []
