"""The page and the tables: right numbers, hostile names as text, nothing from elsewhere."""

import io
import re
import xml.etree.ElementTree
from collections import Counter
from html.parser import HTMLParser

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console
from scipy import stats

from fopng import report
from sample_runs import result

HOSTILE = [
    "<script>alert(1)</script>",
    "\"'><img src=x onerror=alert(1)>",
    "</style>{{ 7*7 }}",
    "$\\frac{",
    "_x",
    "\ud800",
]

# Of 80, 82 and 84 %, by SciPy.
MEAN = "82.00"
HALF_68, HALF_95 = (f"± {stats.t.interval(level, 2, 82, 2 / 3**0.5)[1] - 82:.2f}" for level in (0.68, 0.95))


class Page(HTMLParser):
    """What a browser would find: the tags, their attributes, the visible words."""

    def __init__(self, html):
        super().__init__()
        self.tags, self.attributes, self.words = [], [], []
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs

    def handle_data(self, data):
        self.words.append(data)


def seeds(count=3, **changes):
    accuracies = [0.80, 0.82, 0.84, 0.86, 0.88]
    return [result([[0.9, None], [0.7, 2 * accuracies[seed] - 0.7]], seed=seed, **changes) for seed in range(count)]


def page(results):
    return Page(report.report_html(results, title="Results"))


def test_runs_that_differ_in_protocol_are_never_in_one_panel():
    panels = report.summarise([*seeds(), *seeds(protocol="printed", first_task_lr=None), *seeds(epochs=1)])
    assert len(panels) == 3
    assert [len(panel.lines) for panel in panels] == [1, 1, 1]


def test_a_line_is_a_method_and_its_settings_over_seeds():
    [panel] = report.summarise([*seeds(), *seeds(settings={"lr": 0.1}), *seeds(2, method="sgd", settings={"lr": 0.5})])
    labels = {line.label: line.seeds for line in panel.lines}
    assert labels == {
        "fopng (damping=0.0005, lr=1e-05)": (0, 1, 2),
        "fopng (damping=None, lr=0.1)": (0, 1, 2),
        "sgd": (0, 1),
    }


def test_the_most_accurate_is_first_and_the_unfinished_last():
    unfinished = result([[0.9, None]], method="a")
    [panel] = report.summarise([unfinished, *seeds(1, method="low"), *seeds(5, method="high")])
    assert [line.label for line in panel.lines] == ["high", "low", "a"]
    assert panel.lines[2].accuracy.missing == 1


def test_the_page_says_the_numbers():
    words = " ".join(page(seeds(3)).words)
    assert MEAN in words
    assert HALF_68 in words
    assert HALF_95 in words


def test_one_seed_has_dashes_and_no_band():
    html = report.report_html(seeds(1), title="x")
    assert "80.00" in html
    assert "FillBetween" not in html
    assert "FillBetween" in report.report_html(seeds(2), title="x")


def test_no_results_at_all():
    assert "There are no results here yet." in report.report_html([], title="x")
    assert report.result_tables([]) == []


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_are_text(name):
    results = [result(benchmark=name, method=name, dataset=name, scenario=name, settings={name: name}), *seeds()]
    there = Page(report.report_html(results, title=name))
    assert Counter(there.tags) == Counter(page([result(benchmark="z", method="z"), *seeds()]).tags)
    assert not any(attribute.startswith("on") for attribute, _ in there.attributes)
    shown = name.encode(errors="replace").decode()
    assert "".join(there.words).count(shown) >= 3


def test_the_page_asks_for_nothing_from_elsewhere():
    html = report.report_html(seeds(), title="x")
    links = [value for name, value in Page(html).attributes if name in ("src", "href", "xlink:href")]
    assert all(link.startswith("#") for link in links)
    assert not re.search(r"url\((?!#)|@import|<script|<link", html)


def test_identifiers_are_unique_and_found():
    html = report.report_html([*seeds(), *seeds(protocol="printed")], title="x")
    identifiers = re.findall(r'\bid="([^"]+)"', html)
    assert len(identifiers) == len(set(identifiers))
    assert set(re.findall(r'(?:href="#|url\(#)([^")]+)', html)) <= set(identifiers)


def test_the_drawing_is_whole_and_takes_the_colour_of_the_page():
    html = report.report_html(seeds(), title="x")
    for drawing in re.findall(r"<svg.*?</svg>", html, re.DOTALL):
        xml.etree.ElementTree.fromstring(drawing)
    assert "currentColor" in html
    assert "#0a0b0c" not in html


def test_the_same_results_give_the_same_page():
    results = [*seeds(), *seeds(method="sgd")]
    assert report.report_html(results, title="x") == report.report_html(results[::-1], title="x")


def test_the_file_is_written_whole(tmp_path):
    report.write_report(tmp_path / "report.html", seeds(), title="x")
    assert (tmp_path / "report.html").read_text(encoding="utf-8").endswith("</html>\n")


def printed(results, width):
    console = Console(file=(file := io.StringIO()), width=width)
    for table in report.result_tables(results):
        console.print(table)
    return file.getvalue()


@pytest.mark.parametrize("width", [80, 120])
def test_the_tables_fit_the_terminal(width):
    shown = printed(seeds(method="fopng-prefisher"), width)
    assert max(map(len, shown.splitlines())) <= width
    assert "fopng-prefisher" in shown
    assert re.search(f"{MEAN} +{HALF_68} +{HALF_95}", shown)


@given(st.text(max_size=10))
@settings(max_examples=50)
def test_any_name_can_be_printed(name):
    printed([result(benchmark=name, method=f"[bold]{name}")], 100).encode()


def test_brackets_in_names_are_no_markup():
    assert "[bold]x" in printed([result(method="[bold]x")], 100)
