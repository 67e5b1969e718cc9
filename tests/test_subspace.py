"""Directions of a layer's inputs, against the singular value decomposition of the inputs themselves."""

import pytest
import torch
from torch import nn

import oracle
from flat import named, size
from fopng.core.vector import Vector
from fopng.memory.input_subspace import LayerwiseProjector, Subspace

CLOSE = {"rtol": 1e-9, "atol": 1e-10}


def random(*shape):
    return torch.randn(*shape, dtype=torch.float64)


def inputs(samples, width=6, lead=()):
    """Some directions longer than others."""
    return random(*lead, samples, width) * torch.logspace(0, -2, width, dtype=torch.float64)


def moment(rows):
    return rows.mT @ rows / rows.shape[-2]


def fully(values, old):
    return torch.ones_like(values)


def by_value(values, old):
    each = [oracle.sgp_importance(row, 2.0) if row.max() > 0 else row for row in values.reshape(-1, values.shape[-1])]
    return (torch.stack(each).reshape(values.shape) + old).clamp(max=1)


def taught(tasks, threshold=0.9, weigh=fully):
    space = Subspace.empty(moment(tasks[0]))
    for rows in tasks:
        space = space.learnt(moment(rows), threshold=threshold, weigh=weigh)
    return space


def rank(space):
    return (space.importance > 0).sum(-1).tolist()


@pytest.mark.parametrize("threshold", [0.3, 0.9, 0.999, 1.0])
def test_tasks_leave_the_directions_of_the_paper(threshold):
    tasks = [inputs(20), inputs(3), inputs(9)]
    M = random(6, 0)
    for rows in tasks:
        M = torch.cat([M, oracle.gpm_directions(M, rows.T, threshold)[0]], 1)
    space = taught(tasks, threshold)
    assert rank(space) == M.shape[1]
    torch.testing.assert_close(space.basis @ space.basis.mT, M @ M.T, **CLOSE)
    expected = torch.diag((torch.arange(6) < M.shape[1]).double())
    torch.testing.assert_close(space.basis.mT @ space.basis, expected, **CLOSE)


def test_a_task_that_is_known_adds_nothing():
    rows = inputs(4)
    once, twice = taught([rows], 1.0), taught([rows, rows], 1.0)
    assert rank(once) == rank(twice) == 4
    torch.testing.assert_close(once.basis @ once.basis.mT, twice.basis @ twice.basis.mT, **CLOSE)


def test_the_memory_is_never_wider_than_the_layer():
    space = taught([inputs(30) for _ in range(4)], 1.0)
    assert space.basis.shape == (6, 6)
    assert rank(space) == 6
    torch.testing.assert_close(space.basis @ space.basis.mT, torch.eye(6, dtype=torch.float64), **CLOSE)


def test_replicas_have_directions_of_their_own():
    """Their own number, too: one of them sees two samples."""
    tasks = [inputs(10, lead=(3,)) for _ in range(2)]
    tasks[0][1, 2:] = tasks[0][1, :1]
    threshold = torch.tensor([0.5, 1.0, 0.99], dtype=torch.float64)
    space = taught(tasks[:1], threshold, by_value)
    assert rank(space)[1] == 2
    space = space.learnt(moment(tasks[1]), threshold=threshold, weigh=by_value)
    for r in range(3):
        alone = taught([rows[r] for rows in tasks], float(threshold[r]), by_value)
        products = [s.basis * s.importance.unsqueeze(-2) @ s.basis.mT for s in (space, alone)]
        torch.testing.assert_close(products[0][r], products[1], **CLOSE)


def test_importance_is_added_up_to_one():
    """A direction that the second task needs, too, counts more; one that it does not need counts as before."""
    first = torch.diag(torch.tensor([4.0, 2.0, 1.0, 0.0], dtype=torch.float64))
    second = torch.diag(torch.tensor([0.0, 3.0, 0.0, 1.5], dtype=torch.float64))
    space = taught([first, second], 1.0, by_value)
    expected = torch.tensor([1.0, 3 * 2 / (2 * 2 + 4) + 1, 3 * 1 / (2 * 1 + 4), 3 * 1.5 / (2 * 1.5 + 3)]).clamp(max=1)
    along = (space.basis * space.importance) @ space.basis.mT
    torch.testing.assert_close(along, torch.diag(expected.double()), **CLOSE)


def test_inputs_that_are_all_zero_leave_nothing():
    for weigh in (fully, by_value):
        assert rank(taught([torch.zeros(3, 6, dtype=torch.float64)], 1.0, weigh)) == 0


def test_a_bias_that_old_tasks_did_not_have_is_held_by_a_direction_of_its_own():
    space = taught([inputs(3)], 1.0)
    wide = space.with_bias(7)
    M = wide.basis * wide.importance
    torch.testing.assert_close(M[:6] @ M[:6].mT, space.basis @ space.basis.mT)
    assert M[6] @ M[6] == 1
    assert rank(wide.learnt(moment(random(1, 7)), threshold=1.0, weigh=fully)) == 5


@pytest.mark.parametrize("weight", [True, False], ids=["the weight alone", "the bias alone"])
def test_directions_for_a_part_of_a_layer(weight):
    """What moves of it is orthogonal to what the whole layer was given, and that is all that it loses."""
    space = taught([inputs(3)], 1.0)
    part = space.of_one(weight=weight)
    M, own = part.basis * part.importance, slice(0, -1) if weight else slice(-1, None)
    P = torch.linalg.pinv(space.basis[own].mT) @ space.basis[own].mT
    torch.testing.assert_close((M @ M.mT)[own, own], P)


@pytest.mark.parametrize("samples", [1, 20], ids=["few directions", "many directions"])
@pytest.mark.parametrize("lead", [(), (2,)])
@pytest.mark.parametrize("weigh", [fully, by_value])
def test_a_layer_loses_what_lies_along_the_directions(samples, lead, weigh):
    model = nn.Sequential(nn.Conv2d(2, 3, 2), nn.LayerNorm(3), nn.Linear(5, 4, bias=False))
    shapes = {name: p.shape for name, p in model.named_parameters()}
    spaces = {
        ("0.weight", "0.bias"): taught([inputs(samples, 9, lead)], 0.95, weigh),
        ("2.weight",): taught([inputs(samples, 5, lead)], 0.95, weigh),
    }
    frozen = Vector({"1.bias": torch.ones(3, dtype=torch.float64)})
    given = named(random(*lead, size(shapes)), shapes)
    left = LayerwiseProjector(spaces, frozen)(given)
    for r in range(lead[0]) if lead else [()]:
        weights = {names: [space.basis[r], space.importance[r]] for names, space in spaces.items()}
        conv = torch.cat([given["0.weight"][r].reshape(3, 8), given["0.bias"][r][:, None]], 1)
        expected = oracle.scaled_projection(conv, *weights["0.weight", "0.bias"])
        torch.testing.assert_close(left["0.weight"][r].reshape(3, 8), expected[:, :8], **CLOSE)
        torch.testing.assert_close(left["0.bias"][r], expected[:, 8], **CLOSE)
        expected = oracle.scaled_projection(given["2.weight"][r], *weights[("2.weight",)])
        torch.testing.assert_close(left["2.weight"][r], expected, **CLOSE)
        assert torch.equal(left["1.weight"][r], given["1.weight"][r])
        assert left["1.bias"][r].abs().max() == 0
