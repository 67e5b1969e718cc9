"""Exports that other programs read."""

import csv
import json

from fopng.lab.runs import export
from fopng.lab.runs.frame import ACCURACY, RUN
from fopng.lab.runs.result import RunResult
from fopng.lab.runs.scores import SCORES
from sample_runs import result


def table(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_json_is_a_list_of_results(tmp_path):
    export.write_json(tmp_path / "all.json", [result(), result(seed=1)])
    members = json.loads((tmp_path / "all.json").read_text())
    assert [RunResult.from_dict(member) for member in members] == [result(), result(seed=1)]


def test_no_results_are_an_empty_list_and_an_empty_table(tmp_path):
    export.write_json(tmp_path / "all.json", [])
    export.write_matrix_csv(tmp_path / "all.csv", [])
    assert json.loads((tmp_path / "all.json").read_text()) == []
    assert table(tmp_path / "all.csv") == []


def test_the_matrix_has_a_row_for_each_measurement(tmp_path):
    export.write_matrix_csv(tmp_path / "matrix.csv", [result(), result(seed=1)])
    rows = table(tmp_path / "matrix.csv")
    assert tuple(rows[0]) == (*RUN, *ACCURACY)
    assert [(row["seed"], row["after_task"], row["on_task"], row["accuracy"]) for row in rows] == [
        *(("0", "1", "1", "0.9"), ("0", "2", "1", "0.8"), ("0", "2", "2", "0.95")),
        *(("1", "1", "1", "0.9"), ("1", "2", "1", "0.8"), ("1", "2", "2", "0.95")),
    ]
    assert json.loads(rows[0]["settings"])["lr"] == 1e-5


def test_the_summary_has_a_row_a_run(tmp_path):
    export.write_summary_csv(tmp_path / "summary.csv", [result(), result([[0.5]])])
    first, second = table(tmp_path / "summary.csv")
    assert tuple(first) == (*RUN, *(score.name for score in SCORES), "intransigence")
    assert (float(first["final_accuracy"]), float(first["seconds"])) == (0.875, 4.5)
    assert second["forgetting"] == ""


def test_a_name_cannot_become_a_formula(tmp_path):
    export.write_summary_csv(tmp_path / "summary.csv", [result(method="=1+1"), result(method='a,"b"\n')])
    assert [row["method"] for row in table(tmp_path / "summary.csv")] == ["'=1+1", 'a,"b"\n']
