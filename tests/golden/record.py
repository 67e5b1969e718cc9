"""Record what every method does: `python tests/golden/record.py`; whole runs too with `--runs` (MNIST must be there).

`--sensitivity` records nothing. It has every product, sum and decomposition off by a unit in the last place at random, and prints
how far the weights then are from the recorded ones: what a tolerance has to allow for.
"""

import argparse
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

sys.path[0] = str(Path(__file__).parents[1])

from golden import batched, eager, stored, whole  # noqa: E402

ROUNDING = (
    *(
        "mm",
        "bmm",
        "addmm",
        "addbmm",
        "baddbmm",
        "mv",
        "addmv",
        "dot",
        "vdot",
        "sum",
        "mean",
        "exp",
        "tanh",
        "log",
        "sqrt",
    ),
    *(
        "convolution",
        "native_layer_norm",
        "_softmax",
        "_log_softmax",
        "linalg_vector_norm",
        "linalg_cholesky_ex",
        "div",
    ),
    *("_linalg_eigh", "_linalg_svd", "linalg_qr", "linalg_solve_triangular", "triangular_solve", "cholesky_solve"),
    *("linalg_inv_ex", "cholesky_inverse", "reciprocal", "rsqrt", "native_layer_norm_backward", "convolution_backward"),
    *("_linalg_solve_ex", "linalg_lu_factor_ex", "tanh_backward", "_log_softmax_backward_data"),
)
"""Operations whose last bit depends on the order of sums or on a library."""


class LastBit(TorchDispatchMode):
    """Multiply what such operations return by 1 + (-1, 0 or 1) units in the last place: equal values stay equal."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.factor = 2 * seed + 2_654_435_761

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        found = func(*args, **(kwargs or {}))
        if func.overloadpacket.__name__ not in ROUNDING or any(each.alias_info for each in func._schema.returns):
            return found
        return tuple(map(self.off, found)) if isinstance(found, (tuple, list)) else self.off(found)

    def off(self, value: object) -> object:
        if not isinstance(value, Tensor) or value.dtype != torch.float64:
            return value
        # drawn from the value's own bits, for a function of equal inputs must give equal outputs
        signs = (value.contiguous().view(torch.int64) * self.factor >> 32) % 3 - 1
        return value * (1 + torch.finfo(torch.float64).eps * signs.double())


def run_all(only: str = "") -> dict[str, Callable[[], tuple[Tensor, object]]]:
    """What gives each case's weights, and its accuracies where it has any."""
    found = {name: lambda case=case: (eager.weights(case), None) for name, case in eager.CASES.items()}
    found |= {f"batched: {name}": lambda name=name: _batched(name) for name in batched.NAMES}
    return {name: each for name, each in found.items() if only in name}


def _batched(name: str) -> tuple[Tensor, object]:
    with tempfile.TemporaryDirectory() as folder:
        return batched.trained(name, Path(folder))


def record() -> None:
    """Write the values of all cases."""
    found = {name: run() for name, run in run_all().items()}
    stored.save(
        {name: weights for name, (weights, _) in found.items()},
        {name.removeprefix("batched: "): scores for name, (_, scores) in found.items() if scores is not None},
    )
    print(f"{len(found)} cases in {stored.VALUES.name}, {stored.VALUES.stat().st_size / 1e3:.0f} kB")


def sensitivity(only: str, rounds: int = 5) -> None:
    """Print the tolerance that each case would need, the largest first."""
    table = []
    for name, run in run_all(only).items():
        expected, far = stored.values()[name], []
        for seed in range(rounds):
            with LastBit(seed):
                found, _ = run()
            far.append(float(((found - expected).abs() / (1 + expected.abs())).max()))
        table.append((max(far), name))
    for far, name in sorted(table, reverse=True):
        print(f"{far:.1e}  {name}")


def record_runs() -> None:
    """Write the accuracies of the runs through the command line."""
    found = {}
    for command in whole.COMMANDS:
        with tempfile.TemporaryDirectory() as folder:
            found[command] = whole.run(command, Path(folder))
    whole.save(found)
    print(f"{len(found)} commands in {whole.RUNS.name}")


def main() -> None:
    """Record, or tell how sensitive the values are."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sensitivity", action="store_true")
    parser.add_argument("--runs", action="store_true", help="record whole runs, and nothing else")
    parser.add_argument("--only", default="", help="cases whose name contains this; for --sensitivity")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    if arguments.sensitivity:
        sensitivity(arguments.only)
    elif arguments.runs:
        record_runs()
    else:
        record()


if __name__ == "__main__":
    main()
