"""On a CUDA device: NCCL, and gloo with tensors that lie on the device, come to the numbers of one process."""

from pathlib import Path

import pytest
import torch

from distributed import jobs
from distributed.fleet import launch
from distributed.test_one_run import TOLERANCE, alone, each_case

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


@pytest.mark.parametrize(("count", "backend"), [(1, "nccl"), (2, "gloo")])
def test_every_method_ends_where_one_process_does(count: int, backend: str, tmp_path: Path):
    """NCCL has one process a device, so that one device can show no more than that the calls are right."""
    fleet = launch(count, "every_method", tmp_path / "fleet", backend=backend, device="cuda")

    def check(case: jobs.Case) -> None:
        expected, found = alone(case), [each[case.label] for each in fleet]
        for each in found:
            assert torch.equal(each["parameters"], found[0]["parameters"]), "processes differ"
            torch.testing.assert_close(each["parameters"], expected["parameters"], **TOLERANCE)

    each_case(jobs.cases(count), check)
