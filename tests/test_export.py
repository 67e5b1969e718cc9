"""Exports that other programs read."""

import csv
import dataclasses
import json

import pytest

from fopng.lab.runs import export
from fopng.lab.runs.frame import ACCURACY, RUN, accuracy_frame, frame
from fopng.lab.runs.result import RunResult
from fopng.lab.runs.scores import SCORES
from sample_runs import result


def table(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("results", [[], [result(), result(seed=1)]], ids=["none", "two"])
def test_json_is_a_list_of_results(tmp_path, results):
    export.write_json(tmp_path / "all.json", results)
    members = json.loads((tmp_path / "all.json").read_text())
    assert [RunResult.from_dict(member) for member in members] == results


def test_the_matrix_has_a_row_for_each_measurement(tmp_path):
    lost = [[0.0, None], [0.25, 0.0]]
    held_out = dataclasses.replace(result(seed=1), lost=lost, validation_accuracy=[[0.7]], validation_lost=[[0.0]])
    export.write_matrix_csv(tmp_path / "matrix.csv", [result(), held_out])
    rows = table(tmp_path / "matrix.csv")
    assert tuple(rows[0]) == (*RUN, *ACCURACY)
    assert [tuple(row[name] for name in ("seed", *ACCURACY)) for row in rows] == [
        *(("0", "test", "1", "1", "0.9", ""), ("0", "test", "2", "1", "0.8", ""), ("0", "test", "2", "2", "0.95", "")),
        ("1", "test", "1", "1", "0.9", "0.0"),
        *(("1", "test", "2", "1", "0.8", "0.25"), ("1", "test", "2", "2", "0.95", "0.0")),
        ("1", "validation", "1", "1", "0.7", "0.0"),
    ]
    assert json.loads(rows[0]["settings"])["lr"] == 1e-5


def test_the_summary_has_a_row_a_run(tmp_path):
    export.write_summary_csv(tmp_path / "all.csv", [result().named("sweep/a", "comparison"), result([[0.5]])])
    first, second = table(tmp_path / "all.csv")
    assert tuple(first) == (*RUN, *(score.name for score in SCORES), "intransigence")
    assert (float(first["final_accuracy"]), float(first["seconds"])) == (0.875, 4.5)
    assert (first["experiments"], second["forgetting"]) == ("comparison; sweep/a", "")
    assert (first["peak_memory_bytes"], second["removed_fraction"]) == ("1024", "0.1")


def test_no_results_are_a_frame_with_the_same_columns(tmp_path):
    assert list(frame([])) == list(frame([result()]))
    assert list(accuracy_frame([])) == list(accuracy_frame([result()]))
    export.write_summary_csv(tmp_path / "all.csv", [])
    assert table(tmp_path / "all.csv") == []


def test_a_frame_knows_the_joint_run_and_opens_by_experiment():
    joint = result([[0.9, None], [0.9, 1.0]], method="joint")
    made = frame([joint, result().named("comparison", "ablation/lr")])
    assert made["intransigence"].tolist() == pytest.approx([float("nan"), 0.025], nan_ok=True)
    assert made.explode("experiments").groupby("experiments").size().to_dict() == {"comparison": 1, "ablation/lr": 1}


def test_a_name_cannot_become_a_formula(tmp_path):
    export.write_summary_csv(tmp_path / "all.csv", [result(method="=1+1"), result(method='a,"b"')])
    assert [row["method"] for row in table(tmp_path / "all.csv")] == ["'=1+1", 'a,"b"']
