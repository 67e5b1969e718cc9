"""Figures and tables in Chromium: all that is drawn is in its frame and has its name, and little screens show what matters."""

import pytest

from browser import find_chromium
from fopng.lab import report
from sample_runs import laboratory, result

pytestmark = pytest.mark.skipif(find_chromium() is None, reason="Chromium is not installed")

METHODS = ["sgd", "ewc", "ogd", "fopng", "fopng-prefisher", "adam", "si"]


@pytest.fixture
def open_page(browser, tmp_path):
    def opened(results, width):
        report.write_report(tmp_path / "page.html", results, title="Results")
        browser.resize(width)
        browser.open(tmp_path / "page.html")
        return browser

    return opened


def twins():
    """Methods that come to the same numbers, and some that do not."""
    first = laboratory(["fopng"])
    same = [
        result(run.accuracy, method=name, seed=run.config.seed) for name in ("fopng-prefisher", "ong") for run in first
    ]
    return [*first, *same, *laboratory(["sgd", "ewc"])]


OUTSIDE = """(() => {
  const svg = document.querySelector("#p0-learning svg"), frame = svg.querySelector(".grid").getBBox();
  const axis = svg.querySelector(".axis").getBBox();
  return [...svg.querySelectorAll(".w")].map(path => path.getBBox()).filter(box =>
    box.x <= frame.x || box.x + box.width >= frame.x + frame.width || box.y <= 10 || box.y + box.height >= axis.y).length;
})()"""


@pytest.mark.parametrize("results", [twins(), laboratory(METHODS)])
@pytest.mark.parametrize("width", [400, 900, 1600])
def test_whiskers_are_inside_the_frame_and_every_method_is_named(open_page, width, results):
    browser = open_page(results, width)
    chart = "document.querySelector('#p0-learning svg')"
    methods = sorted({run.config.method for run in results})
    assert browser.evaluate(f"{chart}.querySelectorAll('.w').length") >= len(methods)
    assert browser.evaluate(OUTSIDE) == 0
    assert sorted(browser.evaluate(f"[...{chart}.querySelectorAll('text.n')].map(t => t.textContent)")) == methods


def test_no_stroke_runs_through_a_name(open_page):
    """Names are drawn last, on a ground of their own."""
    browser = open_page(twins(), 900)
    after, ground = browser.evaluate(
        """(() => {
          const svg = document.querySelector("#p0-learning svg"), names = [...svg.querySelectorAll("text.n")];
          const under = [...svg.querySelectorAll(".front, .k, .w")].filter(path => !path.parentNode.querySelector("text"));
          const style = getComputedStyle(names[0]), paper = getComputedStyle(document.body).backgroundColor;
          return [under.every(path => path.compareDocumentPosition(names[0]) & Node.DOCUMENT_POSITION_FOLLOWING),
            style.paintOrder.startsWith("stroke") && parseFloat(style.strokeWidth) >= 4 && style.stroke === paper];
        })()"""
    )
    assert after
    assert ground


def test_a_name_goes_with_its_method(open_page):
    browser = open_page(laboratory(["sgd", "ewc"]), 900)
    browser.evaluate("document.getElementById('m0').click()")
    names = "[...document.querySelectorAll('#p0-learning text.n')].filter(t => t.getClientRects().length)"
    assert browser.evaluate(f"{names}.map(t => t.textContent)") == ["sgd"]


def test_many_points_have_a_legend(open_page):
    legend = "[...document.querySelectorAll('#p0-learning .legend li')].map(item => item.textContent)"
    names = [f"method-{number:02d}" for number in range(30)]
    assert sorted(open_page(laboratory(names), 900).evaluate(legend)) == names
    assert open_page(laboratory(names[:10]), 900).evaluate(legend) == []


@pytest.mark.parametrize("width", [360, 400, 900, 1600])
def test_a_matrix_of_five_tasks_needs_no_scrolling(open_page, width):
    """Also where every number is as long as it can be."""
    matrix = [[1.0, 0.999, 0.888, 0.999, 1.0][: task + 1] + [None] * (4 - task) for task in range(5)]
    browser = open_page([result(matrix, method=method) for method in METHODS], width)
    wide = browser.evaluate("[...document.querySelectorAll('.heats .scroll')].map(e => [e.scrollWidth, e.clientWidth])")
    assert len(wide) == len(METHODS)
    assert all(needed <= there for needed, there in wide), wide


def test_accuracy_and_forgetting_are_seen_on_a_phone_without_scrolling(open_page):
    browser = open_page(laboratory(METHODS), 400)
    heads = browser.evaluate(
        "[...document.querySelectorAll('table.scores thead th')].map(h => [h.textContent, h.getBoundingClientRect().right])"
    )
    edge = browser.evaluate("document.querySelector('table.scores').parentNode.getBoundingClientRect().right")
    assert {name for name, right in heads if right <= edge} >= {"method", "accuracy, %", "forgetting, %"}


def test_time_and_memory_say_their_units(open_page):
    browser = open_page(laboratory(["sgd", "ewc"]), 900)
    for figure, unit in (("seconds", "seconds"), ("memory", "megabytes")):
        assert browser.evaluate(f"document.querySelector('#p0-{figure} h3').textContent").endswith(f", {unit}")
        texts = browser.evaluate(f"[...document.querySelectorAll('#p0-{figure} svg text')].map(t => t.textContent)")
        assert unit in texts


@pytest.mark.parametrize("width", [900, 1600])
@pytest.mark.parametrize("methods", [["fopng", "sgd"], ["sgd"]])
def test_memory_is_not_alone_in_its_row(open_page, width, methods):
    removed = (None, 0.1) if "fopng" in methods else ()
    browser = open_page([result(method=method, removed=removed) for method in methods], width)
    boxes = browser.evaluate(
        "Object.fromEntries([...document.querySelectorAll('.pair figure')].map(f => { const b = f.getBoundingClientRect();"
        " return [f.id.slice(3), [b.left, b.top, b.right, b.bottom]]; }))"
    )
    left, top, _, bottom = boxes["memory"]
    beside = [
        box for name, box in boxes.items() if name != "memory" and box[2] <= left and box[1] < bottom and top < box[3]
    ]
    assert beside
