"""The documentation: its examples run, its commands exist and say what is printed, its links lead somewhere, its site builds."""

import contextlib
import io
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import typer

import fopng
import prose
from browser import Browser, find_chromium
from fopng.cli import app
from fopng.cli.errors import exit_code
from fopng.lab.benchmarks import find_benchmark, settable
from fopng.lab.sweep import read_sweep
from fopng.optim.registry import METHODS
from test_architecture import public_objects

ROOT = Path(__file__).parents[1]
MADE = ("api", "_build", "commands.md")
"""What building the site writes into docs."""

PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")),
    *sorted(p for p in (ROOT / "docs").rglob("*.md") if p.relative_to(ROOT / "docs").parts[0] not in MADE),
]

FENCE = re.compile(r"^```(?P<kind>\S*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
INDENTED = re.compile(r"(?:^    \S.*\n)+", re.MULTILINE)
LINK = re.compile(r"\]\((?P<target>[^)\s]+)\)")


ELSEWHERE = ("avalanche.md", "lightning.md", "hugging-face.md", "lora.md")
"""Pages about other libraries: their examples run in processes of their own, in tests/integrations."""


def name_of(page):
    return str(page.relative_to(ROOT))


def each_page(*kinds):
    """Pages with blocks of these kinds."""
    return [page for page in PAGES if any(block["kind"] in kinds for block in FENCE.finditer(page.read_text()))]


# Examples


@pytest.mark.parametrize(
    "page", [p for p in each_page("python", "console", "toml") if p.name not in ELSEWHERE], ids=name_of
)
def test_examples_run(page, shared_cache, tmp_path, monkeypatch):
    """From the top to the bottom of a page, in an empty folder: Python, files, and commands with what they print.

    A comment `<!--python ... -->` prepares what an example takes for granted.
    """
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    names = {"__name__": "__main__"}
    for block in FENCE.finditer(
        re.sub(r"<!--python\n(.*?)-->", r"```python\n\1```", page.read_text(), flags=re.DOTALL)
    ):
        if block["kind"] == "python":
            with contextlib.redirect_stdout(io.StringIO()):
                exec(compile(block["text"], str(page), "exec"), names)
        elif block["kind"] == "toml":
            if "benchmarks" in tomllib.loads(block["text"]):
                check_sweep(tmp_path, block["text"])
            if title := re.match(r"# (\S+\.toml)\n", block["text"]):
                Path(title[1]).write_text(block["text"])
        elif block["kind"] == "console":
            run_console(block["text"], monkeypatch)


def check_sweep(folder, text):
    """Every setting of a file for a sweep exists, on every benchmark that it names."""
    (folder / "example.toml").write_text(text)
    sweep = read_sweep(folder / "example.toml")
    for benchmark in sweep.benchmarks:
        assert set(sweep.benchmark_settings) <= set(settable(find_benchmark(benchmark))), benchmark


def run_console(text, monkeypatch):
    for command, expected in re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", text, re.MULTILINE):
        monkeypatch.setattr(sys, "argv", shlex.split(command))
        printed, progress = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(progress):
            code = exit_code(app)
        assert code == 0, progress.getvalue()
        said = printed.getvalue() + "\n".join(line for line in progress.getvalue().splitlines() if is_message(line))
        assert is_shown(expected, said), f"{command} printed:\n{said}"


def is_message(line):
    return not re.search(r"seed \d", line)


def is_shown(expected, printed):
    """Whether each line was printed, numbers and spaces aside: another processor may change the last digit, or the order."""
    lines = masked(printed)
    return all(line in lines for line in masked(expected) if line != "...")


def masked(text):
    lines = (" ".join(re.sub(r"-?\d[\d.]*", "#", line).split()) for line in text.splitlines())
    return {line for line in lines if line}


def test_a_wrong_output_is_seen():
    assert is_shown("ogd 82.07 ± 0.96\n", "title\n ogd   12.5 ±  7.1\n")
    assert not is_shown("ogd 82.07 ± 0.96\n", "sgd 82.07 ± 0.96\n")
    assert not is_shown("Written: a.html\n", "Written: b.html\n")


# Commands


def commands(page):
    """Every command that a page shows or mentions: in blocks without a language or of a shell, and in the text."""
    text = page.read_text()
    shells = [block["text"] for block in FENCE.finditer(text) if block["kind"] in ("", "sh", "bash", "console", "text")]
    rest = FENCE.sub("", text)
    lines = "\n".join([*shells, *INDENTED.findall(rest)]).splitlines()
    yield from (found for line in lines for found in shell_commands(line))
    for code in re.findall(r"(?<!`)`([^`\n]+)`(?!`)", rest):
        yield from shell_commands(code)


def shell_commands(line):
    line = re.sub(r"^\$ ", "", line.strip())
    loop = re.fullmatch(r"for (\w+) in (\S+).*?; do (.*); done", line)
    if loop:
        line = loop[3].replace(f"${loop[1]}", loop[2])
    line = re.split(r"\s{2,}|\s#", line)[0].strip()
    if re.match(r"(fopng|make|python|pip) [\w./\"'<-]", line):
        yield line


def check(command):
    """Refuse what the command line would refuse, without doing it."""
    words = shlex.split(command)
    if words[0] == "make":
        assert re.search(rf"^{words[1]}:", (ROOT / "Makefile").read_text(), re.MULTILINE)
    elif words[0] == "python" and words[1].endswith(".py"):
        assert (ROOT / words[1]).exists()
    elif words[:2] == ["pip", "install"]:
        extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
        asked = [extra for word in words for found in re.findall(r"\[(.*)\]", word) for extra in found.split(",")]
        assert set(asked) <= set(extras)
    elif words[0] == "fopng":
        check_ours(words[1:])


def check_ours(words):
    command, words = typer.main.get_command(app), [word.split("|")[0] for word in words]
    while words and (members := getattr(command, "commands", None)) is not None:
        if words[0].isupper() or words[0] in {"--help", *(option for each in command.params for option in each.opts)}:
            return
        command, words = members[words[0]], words[1:]
    if words in ([], ["--help"]) or "..." in words:
        return  # the name of a command in a sentence, or a question about it
    context = command.make_context("fopng", words, resilient_parsing=False)
    check_names(context.params)


def check_names(parameters):
    for kind in ("method", "methods"):
        given = parameters.get(kind) or []
        for name in [given] if isinstance(given, str) else given:
            assert name in METHODS or name.isupper()
    benchmark = parameters.get("benchmark")
    if isinstance(benchmark, str) and not benchmark.isupper() and ":" not in benchmark:
        find_benchmark(benchmark)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_commands_exist(page, monkeypatch):
    monkeypatch.chdir(ROOT)
    for command in commands(page):
        try:
            check(command)
        except Exception as error:
            raise AssertionError(f"{name_of(page)}: `{command}`: {type(error).__name__} {error}") from error


@pytest.mark.parametrize(
    "command",
    ["fopng rum split-mnist sgd", "fopng run split-mnist sgd --sed 5", "fopng run split-mnist fopgn", "make nothing"],
)
def test_a_wrong_command_is_seen(command):
    assert list(shell_commands(command)) == [command]
    with pytest.raises(Exception, match=".*"):
        check(command)


# Links


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_somewhere(page):
    """Inside the repository; those inside the site are checked again when it is built, headings included."""
    for target in LINK.findall(FENCE.sub("", page.read_text())):
        path, _, _ = target.partition("#")
        if path and not path.startswith(("http://", "https://", "mailto:")) and Path(path).parts[0] not in MADE:
            assert (page.parent / path).exists(), target


# The prose


@pytest.mark.parametrize("page", prose.pages(), ids=name_of)
def test_a_page_is_short(page):
    assert prose.count(prose.text_of(page)) <= prose.PAGE_WORDS


def test_the_site_is_short():
    assert sum(prose.count(prose.text_of(page)) for page in prose.pages()) <= prose.SITE_WORDS


def test_the_readme_is_one_screen_after_another():
    page = ROOT / "README.md"
    text = prose.text_of(page)
    assert len(page.read_text().splitlines()) <= prose.README_LINES
    assert prose.count(text) <= prose.README_WORDS
    assert prose.long_sentences(text) == []
    assert [cell for cell in prose.cells(text) if prose.count(cell) > prose.CELL_WORDS] == []


def test_long_sentences_and_abbreviations_are_found():
    assert prose.long_sentences("One two. " + "word " * 26 + "end.") == ["word " * 26 + "end."]
    assert prose.abbreviations("a KFAC of `GPM` and KL") == {"KFAC", "KL"}
    assert prose.count("| a | `b c` | 3 |") == 4


# The site


def test_the_site(tmp_path):
    """One test, since building takes the time: no warnings, everything in the reference, a page a method, no page lost."""
    pytest.importorskip("furo")
    pytest.importorskip("myst_parser")
    # without the list of names beside a page, which takes a third of the time and cannot fail
    quicker = ["-D", "toc_object_entries=0"]
    command = [
        sys.executable,
        "-m",
        "sphinx",
        "-W",
        "--keep-going",
        "-q",
        *quicker,
        "-b",
        "html",
        "docs",
        str(tmp_path),
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert missing_from_reference(tmp_path) == set()
    assert methods_without_page(tmp_path) == []
    assert lost_pages(tmp_path) == set()
    if find_chromium() is not None:
        assert formulas_that_scroll_upright(tmp_path) == []


def missing_from_reference(site):
    """Public classes and functions, with their methods, that the reference does not hold; commands and kernels are left out."""
    from sphinx.util.inventory import InventoryFile

    listed = InventoryFile.loads((site / "objects.inv").read_bytes(), uri="")
    known = {name for kind, entries in listed.data.items() if kind.startswith("py:") for name in entries}
    left_out = ("fopng.cli", "fopng.core.kernels", "fopng.__main__")
    # torch gives a class a step of its own when it is used for the first time
    public = {
        name for name, thing in public_objects() if not name.startswith(left_out) and not hasattr(thing, "hooked")
    }
    return (public | {f"{home}.{name}" for name, home in fopng.HOMES.items()}) - known


def methods_without_page(site):
    pages = {
        name: site / "reference" / "methods" / f"{name}.html" for name, entry in METHODS.items() if not entry.joint
    }
    return [name for name, page in pages.items() if not page.exists() or "<math" not in page.read_text()]


def formulas_that_scroll_upright(site):
    """Formulas on the pages of methods that are cut below, or have a scrollbar beside them."""
    browser, found = Browser(site / "_profile"), []
    upright = (
        "[...document.querySelectorAll('div.math')].filter(e => e.scrollHeight > e.clientHeight"
        " || getComputedStyle(e).overflowY !== 'hidden').length"
    )
    try:
        for page in sorted((site / "reference" / "methods").glob("*.html")):
            for width in (400, 1200):
                browser.resize(width)
                browser.open(page)
                found += [(page.stem, width)] * browser.evaluate(upright)
    finally:
        browser.close()
    return found


def lost_pages(site):
    """Pages that no link leads to from the first one, and links that lead to no page."""
    seen, waiting, nowhere = set(), ["index.html"], set()
    while waiting:
        page = waiting.pop()
        seen.add(page)
        for target in re.findall(r'href="([^"#:]+\.html)(?:#[^"]*)?"', (site / page).read_text()):
            path = str(((site / page).parent / target).resolve().relative_to(site.resolve()))
            if not (site / path).exists():
                nowhere.add(f"{page}: {target}")
            elif path not in seen and path not in waiting:
                waiting.append(path)
    own = {str(path.relative_to(site)) for path in site.rglob("*.html")}
    return nowhere | {path for path in own - seen if not path.startswith(("_", "genindex", "py-modindex", "search"))}
