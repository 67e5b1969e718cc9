"""The tables of the documentation, and the committed pages made again from the committed results."""

from dataclasses import replace

import pytest

from fopng.lab.runs.ablations import ABLATIONS
from fopng.lab.runs.store import load_results
from paper_runs import paper_run
from reproduction import FOLDER, RESULTS
from reproduction.pages import TABLES, filled, pages
from reproduction.tables import method_results
from sweep_runs import held_out, on_test


def runs():
    table = {"sgd": 0.7, "fopng": 0.9, "ogd": 0.8}
    found = [paper_run("split-mnist", method, seed, level) for method, level in table.items() for seed in range(3)]
    found += [paper_run("split-mnist", "sgd", seed, 0.6, protocol="printed", first_task_lr=None) for seed in range(3)]
    found += [
        paper_run("split-mnist", "fopng", seed, 0.85, settings={"damping": value}, experiments=("ablation/damping",))
        for value in ABLATIONS["lambda"].values
        for seed in range(3)
    ]
    return [*found, *(held_out(0.5 + rate, settings={"lr": rate}) for rate in (0.1, 0.2, 0.3))]


def test_claims():
    text = TABLES["claims"](runs())
    assert "*(beats-ogd)*" in text
    assert "does not hold" in text


def test_comparisons():
    text = TABLES["comparisons"](runs())
    assert "| method | matched protocol, the paper's settings, 5 epochs, 3 seeds | printed protocol" in text
    assert "| sgd | 70.00 ± 0.05 (" in text


def test_choices():
    wanted = "| split-mnist (matched) | fopng | lr=0.3 | 80.00 | 3 | lr = 0.3 is the largest that was tried. |"
    assert wanted in TABLES["choices"](runs())


def test_ablations():
    text = TABLES["ablations"](runs())
    assert "### damping" in text
    assert "| 1e-05 | 85.00 ± " in text


def test_a_form_has_one_line_under_all_conditions():
    """Two forms of FOPNG with the paper's settings, one of them with the settings that a sweep chose."""
    forms = [
        on_test(0.7 + 0.1 * (form == "printed"), seed=seed, settings={"projection": form})
        for form in ("printed", "orthogonal")
        for seed in range(3)
    ]
    one = on_test(0.9, seed=10, settings={"projection": "printed", "lr": 0.5}).named("chosen/mine")
    lines = [line for line in TABLES["comparisons"]([*forms, one]).splitlines() if line.startswith("| fopng (")]
    assert [(line.split(" | ")[0], line.count("(")) for line in lines] == [
        ("| fopng (projection=orthogonal)", 2),
        ("| fopng (projection=printed)", 3),
    ]


@pytest.mark.parametrize("name", ["claims", "comparisons", "choices", "ablations"])
def test_the_same_results_give_the_same_whole_tables_in_any_order(name):
    text = TABLES[name](runs())
    assert TABLES[name](runs()[::-1]) == text
    for block in text.split("\n\n"):
        assert not block.startswith("|") or len({line.count("|") for line in block.splitlines()}) == 1
    assert isinstance(TABLES[name]([]), str)


def test_what_one_method_reached():
    best = [paper_run("split-mnist", "sgd", seed, 0.99) for seed in range(3)]
    er = [replace(run, config=replace(run.config, method="er")) for run in best]  # keeps samples: no rival
    table = method_results([*runs(), *er], "sgd").splitlines()
    assert len(table) == 4  # a heading, a line, and the two protocols
    where = "| split-mnist, matched protocol, the paper's settings, 5 epochs, 3 seeds | sgd | 70.00 ± 0.05 ("
    assert table[2].startswith(where)
    assert "| fopng: 90.00 ± 0.05 (" in table[2]
    assert "sgd: 60.00" in table[3]
    assert method_results(runs(), "gem") == ""


def test_only_blocks_are_written():
    text = "a\n<!-- numbers: one -->\nold\n<!-- end -->\nb\n<!-- numbers: two words -->\n<!-- end -->\n"
    wanted = (
        "a\n<!-- numbers: one -->\n\nONE\n\n<!-- end -->\nb\n<!-- numbers: two words -->\n\nTWO WORDS\n\n<!-- end -->\n"
    )
    assert filled(text, str.upper) == wanted
    assert filled(wanted, str.upper) == wanted


def test_a_block_without_a_table_is_refused(tmp_path):
    (tmp_path / "README.md").write_text("<!-- numbers: two -->\n<!-- end -->\n")
    with pytest.raises(ValueError, match="Expected a table among .*, got 'two'"):
        pages(tmp_path, [])


def test_the_committed_pages_are_what_the_command_writes():
    found = pages(FOLDER.parent, load_results([RESULTS]))
    assert {path.name for path in found} >= {"README.md", "tables.md"}
    for path, text in found.items():
        assert path.read_text(encoding="utf-8") == text, path
