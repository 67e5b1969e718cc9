"""demo: the paper's seven methods and our own on three small streams, with settings that were chosen for them."""

import dataclasses
import json
import tomllib
from importlib import resources

from fopng.lab.runs import demo
from fopng.lab.runs.hyperparameters import paper_methods

METHODS = [*paper_methods(), "fopng-k"]


def test_every_method_has_settings_of_its_own():
    configs = demo.demo_configurations([0])
    assert [config.method for config in configs] == 3 * METHODS
    assert {config.protocol for config in configs} == {"matched"}
    tables = tomllib.loads(resources.files("fopng.lab.runs").joinpath("demo.toml").read_text(encoding="utf-8"))
    assert all("lr" in table[method] for table in tables.values() for method in METHODS)


def test_a_table_a_page_and_where_to_go_from_there(shared_cache, tmp_path, monkeypatch, command_line):
    """In larger batches than the demo's, which take a minute and more."""
    quick = [
        dataclasses.replace(config, epochs=1, batch_size=200, first_task_lr=0.5)
        for config in demo.demo_configurations([0])
    ]
    monkeypatch.setattr("fopng.cli.demo.demo_configurations", lambda seeds: quick)
    code, out, err = command_line("demo", "--out", str(tmp_path), "--jobs", "1", "--json")
    assert code == 0, err
    found = json.loads(out)
    assert [each["method"] for each in found] == 3 * METHODS
    assert all(0.3 < each["average_accuracy"][0] <= 1 for each in found)
    assert "Eight methods" in (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "begin with fopng-k" in err
