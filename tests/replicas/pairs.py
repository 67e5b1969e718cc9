"""The same runs done one by one and side by side, down to their weights."""

from functools import partial

import torch

from fopng.lab.engine import Precision, train
from fopng.lab.engine.batched import train_replicas
from fopng.lab.storage.checkpoint import Checkpoint
from fopng.optim.registry import METHODS
from small_runs import CPU, SETTINGS, numbers, plan, stream

ONE_BY_ONE = [name for name, entry in METHODS.items() if not entry.joint]


def plans(method, seeds, *, precision="float64", settings=(), tasks=None, **changes):
    """Runs of one method: a seed each, and where `settings` are given a dictionary of them each."""
    tasks = stream(tasks=2) if tasks is None else tasks
    optimizer = METHODS[method].optimizer
    each = [{**SETTINGS.get(method, {"lr": 0.05}), **own} for own in (settings or [{}] * len(seeds))]
    return [
        plan(
            method,
            tasks,
            seed=seed,
            precision=Precision(precision),
            make_optimizer=partial(optimizer, **own),
            **changes,
        )
        for seed, own in zip(seeds, each, strict=True)
    ]


def one_by_one(made, folder, device=CPU):
    """Outcomes and final weights `[R, p]`."""
    outcomes, weights = [], []
    for number, each in enumerate(made):
        checkpoint = Checkpoint(fresh(folder / f"single {number}"))
        outcomes.append(train(each, device=device, checkpoint=checkpoint))
        state = checkpoint.load().state
        # a run that diverges in its first task has saved nothing
        weights.append(
            None if state is None else torch.cat([tensor.flatten() for tensor in state["runs"]["model"].values()])
        )
    return outcomes, None if any(each is None for each in weights) else torch.stack(weights)


def side_by_side(made, folder, device=CPU, **more):
    """Outcomes and final weights `[R, p]`."""
    checkpoint = Checkpoint(fresh(folder / "together"))
    outcomes = train_replicas(made, device=device, checkpoint=checkpoint, **more)
    return outcomes, checkpoint.load().state["runs"]["theta"]


def fresh(folder):
    folder.mkdir(parents=True, exist_ok=True)
    Checkpoint(folder).clear()
    return folder


def assert_same_runs(made, folder, *, rtol=1e-9, atol=1e-11, device=CPU, **more):
    """One by one and side by side: the weights within a tolerance, and what was measured."""
    (single, alone), (replicas, together) = one_by_one(made, folder, device), side_by_side(made, folder, device, **more)
    torch.testing.assert_close(together, alone, rtol=rtol, atol=atol)
    for expected, found in zip(map(numbers, single), map(numbers, replicas), strict=True):
        measured, expected_measured = found.pop("measured"), expected.pop("measured")
        for name in ("lost", "validation_lost"):
            rows = [
                torch.tensor([[-1.0 if x is None else x for x in row] for row in of.pop(name) or []])
                for of in (found, expected)
            ]
            torch.testing.assert_close(*rows, rtol=1e3 * rtol, atol=atol)
        assert found == expected
        assert measured.keys() == expected_measured.keys()
        for name, share in measured.items():
            expected_share = expected_measured[name]
            assert [value is None for value in share] == [value is None for value in expected_share]
            pairs = [pair for pair in zip(share, expected_share, strict=True) if None not in pair]
            torch.testing.assert_close(
                *(torch.tensor(pairs, dtype=torch.float64).reshape(-1, 2).unbind(1)), rtol=1e3 * rtol, atol=atol
            )
