"""A result reads back as it was written, and says what is wrong with it when it cannot."""

import dataclasses
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from faults import cut_short, flipped
from fopng.lab.runs.result import DamagedFileError, RunResult, fingerprint, read_result, result_text
from sample_runs import config, result

rows = st.lists(st.none() | st.floats(0, 1), max_size=4)


def reread(there):
    return RunResult.from_dict(json.loads(result_text(there)))


@given(
    st.lists(rows, max_size=4),
    rows,
    st.none() | st.lists(rows, max_size=4),
    st.lists(st.text(st.characters(exclude_categories=("Cc", "Cs")), min_size=1)),
)
def test_a_result_survives_its_file(accuracy, removed, lost, experiments):
    there = dataclasses.replace(result(accuracy, removed=removed), lost=lost).named(*experiments)
    assert reread(there) == there


def test_the_members_that_the_command_line_promises():
    members = result(seed=7).as_dict()
    assert members["key"] == config(seed=7).key
    assert members["average_accuracy"] == pytest.approx([0.9, 0.875])
    expected = {
        **{"benchmark": "split-mnist", "dataset": "mnist", "scenario": "domain", "protocol": "matched"},
        **{"method": "fopng", "settings": {**config().settings}, "seed": 7, "accuracy": [[0.9, None], [0.8, 0.95]]},
        **{"format": 4, "status": "finished", "experiments": [], "removed_fraction": 0.1, "seconds": 4.5},
        "forgetting": pytest.approx(0.1),
    }
    assert {name: members[name] for name in expected} == expected


def test_a_row_of_the_matrix_is_a_line_in_the_file():
    assert "    [0.9, null],\n    [0.8, 0.95]\n" in result_text(result())


@pytest.mark.parametrize(("device", "peak", "told"), [("cuda", 10**6, 4.5), ("cuda", None, None), ("cpu", None, 4.5)])
def test_seconds_of_a_run_that_shared_its_gpu_with_other_methods_are_not_compared(device, peak, told):
    made = dataclasses.replace(result(), environment={"device": device}, peak_memory_bytes=peak)
    assert (made.comparable_seconds, made.seconds) == (told, 4.5)


def test_numbers_that_are_none_are_null():
    members = json.loads(result_text(result([[0.9, float("nan")]])))
    assert (members["accuracy"], members["forgetting"], members["final_accuracy"]) == ([[0.9, None]], None, None)


@pytest.mark.parametrize(
    ("name", "row", "value"),
    [
        ("removed_fraction", (None, None), None),
        ("removed_fraction", (None, 0.2, 0.4), pytest.approx(0.3)),
        ("compression_error", (None, 0.2, 0.3), 0.3),
        ("something_new", (1.0, 2.0, None), 1.5),
    ],
)
def test_what_a_method_measured_has_a_score_by_its_name(name, row, value):
    there = dataclasses.replace(result(), measured={name: row})
    assert there.as_dict().get(name) == value
    assert reread(there) == there


@pytest.mark.parametrize("later", [{}, {"compression_error_by_task": [None, 0.2]}])
def test_a_result_of_format_1_is_read(later):
    new = json.loads(result_text(result()))
    later_members = ("format", "measured", "experiments", "lost", "validation_lost")
    old = {name: value for name, value in new.items() if name not in later_members}
    measured = {"removed_fraction": (None, 0.1), **({"compression_error": (None, 0.2)} if later else {})}
    assert RunResult.from_dict({**old, "removed_fraction_by_task": [None, 0.1], **later}) == dataclasses.replace(
        result(), measured=measured
    )


@pytest.mark.parametrize("version", [2, 3])
def test_a_result_that_does_not_say_what_was_lost_is_read(tmp_path, version):
    lost = dataclasses.replace(result(), lost=[[0, None], [0.25, 0]])
    new = json.loads(result_text(lost))
    old = {name: value for name, value in new.items() if name not in ("lost", "validation_lost", "sha256")}
    told = {**old, "format": version}
    path = tmp_path / "result.json"
    path.write_text(json.dumps({**told, "sha256": fingerprint(told)}))
    read = read_result(path)
    assert read == result()
    assert (read.lost, read.as_dict()["really_lost"], lost.as_dict()["really_lost"]) == (None, None, 0.25)


def test_names_of_experiments_are_sorted_and_once_each():
    assert result().named("sweep/b", "comparison").named("comparison").experiments == ("comparison", "sweep/b")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"accuracy": 1}, "Expected a list of rows in accuracy, got 1"),
        ({"accuracy": [1]}, "Expected a list of numbers in accuracy, got 1"),
        ({"accuracy": [["x"]]}, "Expected a number or None in accuracy, got 'x'"),
        ({"accuracy": [[True]]}, "got True"),
        ({"seconds_by_phase": {"train": "long"}}, "seconds_by_phase, got 'long'"),
        ({"environment": 3}, "int"),
        ({"measured": {"removed_fraction": 1}}, "Expected a list of numbers in removed_fraction, got 1"),
        ({"experiments": "comparison"}, "Expected names of experiments, got 'comparison'"),
        ({"format": 9}, "Expected a format from 1 to 4, got 9"),
        ({"format": 1}, "removed_fraction_by_task"),
        ({"status": "fine"}, "Expected a status among"),
        ({"config": {}}, "Expected the members"),
        ({"config": 3}, "Expected a mapping for config"),
    ],
)
def test_what_is_wrong_in_a_file_is_named(tmp_path, change, message):
    path = tmp_path / "result.json"
    path.write_text(json.dumps({**result().as_dict(), "format": 2, **change}))
    with pytest.raises(DamagedFileError, match=message):
        read_result(path)


def test_a_number_that_was_changed_on_the_disk_is_not_read(tmp_path):
    path, text = tmp_path / "result.json", result_text(result())
    assert "0.95" in text
    path.write_text(text.replace("0.95", "0.96"))
    with pytest.raises(DamagedFileError, match=r"got other contents \(SHA-256\)"):
        read_result(path)


def test_rubbish_is_a_damaged_file_and_a_flipped_bit_never_another_error(tmp_path):
    path = tmp_path / "result.json"
    content = result_text(result()).rstrip().encode()
    for damaged in (b"", b"null", b"[]", b"{}", b"\xff", b"[" * 100_000, *cut_short(content)):
        path.write_bytes(damaged)
        with pytest.raises(DamagedFileError, match=r"Expected the result of a run in .* Delete it and run it again"):
            read_result(path)
    for damaged in flipped(content, 500):
        path.write_bytes(damaged)
        try:
            read_result(path)
        except DamagedFileError:
            continue
