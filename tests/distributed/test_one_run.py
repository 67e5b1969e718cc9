"""One run over several processes is the run of one."""

import os
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from distributed import jobs
from distributed.fleet import launch
from fopng.core.tree import from_plain
from fopng.parallel.collectives import SINGLE_PROCESS
from methods.worlds import tensors

TOLERANCE = {"rtol": 1e-6, "atol": 1e-6}


def alone(case: jobs.Case) -> dict[str, Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return jobs.live(case, alone=True)


def each_case(cases: list[jobs.Case], check: Callable[[jobs.Case], None]) -> None:
    """Check every case and name those that fail: the processes are started once for all."""
    wrong = {}
    for case in cases:
        try:
            check(case)
        except AssertionError as failure:
            wrong[case.label] = str(failure)
    assert not wrong


@pytest.mark.parametrize("count", [1, 2, 4])
def test_every_method_ends_where_one_process_does(count: int, tmp_path: Path):
    fleet = launch(count, "every_method", tmp_path / "fleet")

    def check(case: jobs.Case) -> None:
        expected, found = alone(case), [each[case.label] for each in fleet]
        assert expected["parameters"].diff(dim=0).abs().amax(-1).min() > 1e-5, "nothing was learnt"
        for each in found:
            assert torch.equal(each["parameters"], found[0]["parameters"]), "processes differ"
            torch.testing.assert_close(each["parameters"], expected["parameters"], **TOLERANCE)
            assert torch.equal(each["generator"], expected["generator"])
            if expected["removed"] is not None:
                torch.testing.assert_close(each["removed"], expected["removed"], **TOLERANCE)
        check_state(found[-1]["state"], expected["state"])
        # stored gradients are the same everywhere, kept samples are spread
        assert {each["held"] for each in found} == {expected["held"]}
        check_spread([each["samples"] for each in found], expected["samples"])

    each_case(jobs.cases(count), check)


def check_state(found: Any, expected: Any) -> None:
    """What is saved has the form of one process's state; a memory may be cut into other pieces."""
    own, others = (
        {key: tuple(tensor.shape) for key, tensor in tensors(state).items() if "/held/" not in key}
        for state in (found, expected)
    )
    assert own == others
    assert directions(found) == directions(expected)


def directions(state: Any) -> Any:
    """How many gradients of each task are stored in a saved state, and of which parameters."""
    memory = from_plain(state).memory
    return None if memory is None else (memory.shares, memory.shapes)


def check_spread(held: list[int], total: int) -> None:
    """Each process has its part: m / W, with one more or less a task, or a draw."""
    assert sum(held) == total
    assert max(held) <= total / len(held) + jobs.TASKS + 1


def test_a_state_of_two_processes_goes_on_in_four_and_in_one(tmp_path: Path):
    first, second = launch(2, "stop", tmp_path / "two")
    torch.save(first, tmp_path / "saved.pt")
    saved = torch.load(tmp_path / "saved.pt", weights_only=True)
    four = launch(4, "resume", tmp_path / "four")

    def check(case: jobs.Case) -> None:
        one, other = tensors(first[case.label]), tensors(second[case.label])
        assert one.keys() == other.keys()
        assert all(torch.equal(one[key], other[key]) for key in one), "processes give different states"
        expected = alone(case)["parameters"][-1]
        for each in four:
            assert torch.equal(each[case.label], four[0][case.label]), "processes differ"
            torch.testing.assert_close(each[case.label], expected, **TOLERANCE)
        torch.testing.assert_close(jobs.resumed(case, saved[case.label], alone=True), expected, **TOLERANCE)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        each_case(jobs.RESUMED, check)


def test_shards_may_differ_in_size(tmp_path: Path):
    expected = jobs.estimates([jobs.data(jobs.EVERY[0])[0][0]], SINGLE_PROCESS)
    for found in launch(2, "uneven", tmp_path / "fleet"):
        for name, value in expected.items():
            torch.testing.assert_close(found[name], value, rtol=1e-10, atol=1e-12, msg=name)


def test_the_others_notice_within_a_minute_that_a_process_has_died(tmp_path: Path):
    found = launch(3, "lose_one", tmp_path / "fleet", lost=1)
    assert found[1] is None
    for each in (found[0], found[2]):
        assert each["seconds"] < 60
        assert "RuntimeError" in each["error"] or "DistBackendError" in each["error"]


def test_what_one_process_cannot_do_fails_in_all(tmp_path: Path):
    """The message names the process; nobody waits for ever, and nothing is left behind."""
    for each in launch(2, "lack_samples", tmp_path / "fleet"):
        assert each["nothing"] == (
            "Expected samples of the task that ends, got none in process 1 of 2. Pass its training data."
        )
        assert "NaN or infinity" in each["broken"]
        assert each["stored"].shape[0] == 5
        assert each["stored"].isfinite().all()


def test_a_model_that_is_not_wrapped_can_be_shared_by_saying_so(tmp_path: Path):
    for each in launch(2, "share_by_hand", tmp_path / "fleet"):
        assert "Pass it the DistributedDataParallel" in each["warning"]
        assert each["warned again"] == ""
        torch.testing.assert_close(each["parameters"], each["expected"], **TOLERANCE)
        assert "before the first task" in each["too late"]


def test_processes_that_took_other_numbers_of_steps_hold_back_alike(tmp_path: Path):
    first, second = launch(2, "uneven_steps", tmp_path / "fleet")
    assert (first["steps"], second["steps"]) == (8, 4)
    assert torch.equal(first["parameters"], second["parameters"])


EXAMPLE = Path(__file__).parents[2] / "examples" / "distributed.py"
LEFT = """
import runpy, sys
from pathlib import Path
runpy.run_path(sys.argv[1], run_name="__main__")
print(sorted(file.read_text().strip() for file in Path("/proc/self/task").glob("*/comm")))
"""


def test_the_example_runs_under_torchrun(tmp_path: Path):
    """And ends where one process does: the accuracy is the same."""
    alone = _told(tmp_path, str(EXAMPLE))
    together = _told(tmp_path, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", str(EXAMPLE))
    assert together.startswith("2 processes")
    assert _accuracies(alone) == _accuracies(together)


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="threads are counted as Linux shows them")
def test_the_example_leaves_no_thread_of_its_group_behind(tmp_path: Path):
    """One that lets go of a tensor while Python ends would abort the process."""
    assert "gloo" not in _told(tmp_path, "-c", LEFT, str(EXAMPLE))


def _told(folder: Path, *command: str) -> str:
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    done = subprocess.run(
        [sys.executable, *command],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout


def _accuracies(told: str) -> list[str]:
    return [word for word in told.split() if "%" in word]
