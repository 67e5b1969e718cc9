"""A full memory made smaller, against dense linear algebra."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from flat import flat, named, size
from fopng.core.tree import bytes_of
from fopng.curvature.metric import Diagonal, Identity
from fopng.gradients.layers import DenseGradients, LinearGradients, SampleGradients
from fopng.memory.compression import captured, combine, leading_directions, lost_share
from fopng.memory.gradients import GradientMemory
from fopng.memory.projection import Projector

CLOSE = {"rtol": 1e-9, "atol": 1e-11}
SHAPES = {
    "a.weight": torch.Size([4, 5]),
    "a.bias": torch.Size([4]),
    "b.scale": torch.Size([6]),
    "c.weight": torch.Size([2, 3]),
    "untouched": torch.Size([2]),
}
SIZE = size(SHAPES)


def random(*shape):
    return torch.randn(*shape, dtype=torch.float64)


def gradients(m, lead=(), positions=1, written_out=False):
    """A factored layer with its bias, a scale, a matrix that is written out, and a parameter that is not reached."""
    linear = LinearGradients(random(*lead, m, positions, 5), random(*lead, m, positions, 4), bias=True)
    first = DenseGradients((linear.rows(0), linear.rows(1)), len(lead)) if written_out else linear
    others = {
        (name,): DenseGradients((random(*lead, m, *SHAPES[name]),), len(lead)) for name in ("b.scale", "c.weight")
    }
    return SampleGradients({("a.weight", "a.bias"): first, **others}, m)


def memory_of(*blocks, weight=None):
    memory = GradientMemory()
    for block in blocks:
        memory = memory.appended(block, weight=weight)
    return memory


def weights(lead=()):
    return named(torch.rand(*lead, SIZE, dtype=torch.float64), SHAPES)


def dense(memory):
    """The directions written out, `[*lead, m, p]`."""
    return flat(memory.rows(), SHAPES)


def diagonal(lead=()):
    return Diagonal(weights(lead), damping=0.1)


def half(metric):
    """`F^-1/2` of a diagonal metric as it multiplies rows."""
    return flat(metric.inverse, SHAPES).sqrt().unsqueeze(-2)


# Which combinations


@pytest.mark.parametrize("lead", [(), (3,)])
def test_the_leading_directions_are_the_singular_vectors_in_the_metric(lead):
    """Eckart and Young: no other k directions hold more of `F^-1/2 B`."""
    memory, metric = memory_of(gradients(9, lead)), diagonal(lead)
    C = leading_directions(metric.inverse_gram(memory), 4, 1.0)
    B = (dense(memory) * half(metric)).mT
    singular = torch.as_tensor(np.linalg.svd(B.numpy(), compute_uv=False))
    torch.testing.assert_close(C.mT @ C, torch.eye(4, dtype=torch.float64).expand(*lead, 4, 4), **CLOSE)
    torch.testing.assert_close(torch.linalg.svdvals(B @ C), singular[..., :4], **CLOSE)


@pytest.mark.parametrize(("energy", "expected"), [(1.0, 4), (0.95, 3), (0.90, 2), (0.7, 1), (0.5, 1), (1e-9, 1)])
def test_as_many_directions_as_the_energy_needs(energy, expected):
    """Of 8, 2, 0.6, 0.3 and so on: the shares are 0.727, 0.909, 0.964, 0.991, 1."""
    gram = torch.diag(torch.tensor([0.3, 8.0, 0.1, 2.0, 0.6], dtype=torch.float64))
    C = leading_directions(gram, 4, energy)
    assert C.shape == (5, 4)
    assert C.norm(dim=0).tolist() == [1.0] * expected + [0.0] * (4 - expected)


def test_each_replica_has_its_own_energy():
    gram = torch.diag(torch.tensor([8.0, 2.0, 1.0], dtype=torch.float64)).expand(2, 3, 3)
    C = leading_directions(gram, 3, torch.tensor([0.5, 0.9]))
    assert C.norm(dim=-2).tolist() == [[1, 0, 0], [1, 1, 0]]


def test_directions_that_depend_on_others_are_no_directions():
    B = random(3, 20)
    rows = torch.cat([B, B.sum(0, keepdim=True)])
    C = leading_directions(rows @ rows.T, 4, 1.0)
    assert C.norm(dim=0).round().tolist() == [1, 1, 1, 0]


# Combining what is stored


@pytest.mark.parametrize("lead", [(), (3,), (2, 2)])
@pytest.mark.parametrize("weighted", [False, True])
def test_layers_that_are_written_out_are_combined_exactly(lead, weighted):
    weight = weights(lead) if weighted else None
    memory = memory_of(gradients(4, lead, written_out=True), gradients(5, lead, written_out=True), weight=weight)
    C = random(*lead, 9, 3)
    torch.testing.assert_close(dense(combine(memory, C)), C.mT @ dense(memory), **CLOSE)


@pytest.mark.parametrize("lead", [(), (3,)])
@pytest.mark.parametrize("positions", [1, 2])
@pytest.mark.parametrize("weighted", [False, True])
def test_a_factored_layer_keeps_the_nearest_terms(lead, positions, weighted):
    weight = weights(lead) if weighted else None
    memory = memory_of(gradients(4, lead), gradients(5, lead, positions), weight=weight)
    C = random(*lead, 9, 3)
    found, exact = combine(memory, C), named(C.mT @ dense(memory), SHAPES)
    u, s, vt = np.linalg.svd(exact["a.weight"].numpy(), full_matrices=False)
    nearest = torch.as_tensor((u[..., :positions] * s[..., None, :positions]) @ vt[..., :positions, :])
    rows = named(dense(found), SHAPES)
    torch.testing.assert_close(rows["a.weight"], nearest, **CLOSE)
    for name in ("a.bias", "b.scale", "c.weight", "untouched"):
        torch.testing.assert_close(rows[name], exact[name], **CLOSE)
    assert ("untouched",) not in found.layers
    [own] = [block.gradients for block in found.held if block.names == ("a.weight",)]
    assert own.positions == positions


@pytest.mark.parametrize("lead", [(), (3,)])
def test_near_is_meant_in_the_lengths_that_are_given(lead):
    """Where the lengths are a product of those of rows and columns, no rank-one matrix is nearer in them."""
    memory, C = memory_of(gradients(6, lead)), random(*lead, 6, 2)
    rows, columns = torch.rand(*lead, 4, 1).double() + 0.1, torch.rand(*lead, 1, 5).double() + 0.1
    lengths = torch.ones(*lead, SIZE, dtype=torch.float64)
    lengths[..., :20] = (rows * columns).flatten(-2)
    found = combine(memory, C, named(lengths, SHAPES)).rows()["a.weight"]
    weighs = (rows * columns).unsqueeze(-3)
    exact = named(C.mT @ dense(memory), SHAPES)["a.weight"]
    u, s, vt = np.linalg.svd((exact * weighs).numpy(), full_matrices=False)
    nearest = torch.as_tensor((u[..., :1] * s[..., None, :1]) @ vt[..., :1, :]) / weighs
    torch.testing.assert_close(found, nearest, **CLOSE)


@pytest.mark.parametrize("part", [0.0, 1.0], ids=["all", "a row"])
def test_what_weighs_nothing_is_kept_in_bounds(part):
    lengths = torch.zeros(SIZE, dtype=torch.float64)
    lengths[5:20] = part
    memory, C = memory_of(gradients(6)), random(6, 2)
    assert dense(combine(memory, C, named(lengths, SHAPES))).norm() < 2e4 * (C.T @ dense(memory)).norm()


def test_a_layer_that_is_factored_for_one_task_only_is_combined_exactly():
    memory = memory_of(gradients(4), gradients(5, written_out=True))
    C = random(9, 3)
    torch.testing.assert_close(dense(combine(memory, C)), C.T @ dense(memory), **CLOSE)


def test_many_blocks_are_one(monkeypatch):
    memory, C = memory_of(gradients(6)), random(6, 5)
    whole = dense(combine(memory, C))
    monkeypatch.setattr("fopng.memory.compression.SLAB_BYTES", 2 * 8 * SIZE)
    torch.testing.assert_close(dense(combine(memory, C)), whole, **CLOSE)


def test_compressing_again_and_again_takes_no_more_room():
    memory = memory_of(gradients(6))
    sizes = []
    for _ in range(3):
        memory = memory.appended(gradients(4))
        memory = combine(memory, leading_directions(memory.gram(None), 6, 1.0))
        sizes.append((memory.count, bytes_of(memory), memory.layers))
    assert sizes == sizes[:1] * 3


def test_the_combinations_of_all_directions_project_as_the_directions_do():
    """Orthonormal combinations change no projection, damped or not, in either form."""
    memory, metric, g = memory_of(gradients(7, written_out=True)), diagonal(), named(random(SIZE), SHAPES)
    mixed = combine(memory, leading_directions(metric.inverse_gram(memory), 7, 1.0))
    for form in ("printed", "orthogonal"):
        found, expected = (Projector.build(each, metric, gram_damping=0.1, form=form)(g) for each in (mixed, memory))
        torch.testing.assert_close(found.parts, expected.parts, **CLOSE)


# What is lost


@pytest.mark.parametrize("lead", [(), (3,)])
def test_what_is_captured_is_what_least_squares_explains(lead):
    old, new, metric = memory_of(gradients(7, lead)), memory_of(gradients(4, lead)), diagonal(lead)
    B, N = ((dense(each) * half(metric)).mT.numpy() for each in (old, new))
    explained = N @ np.linalg.pinv(N) @ B
    expected = torch.as_tensor((explained**2).sum((-2, -1)))
    torch.testing.assert_close(captured(old, new, metric, old.like), expected, **CLOSE)


def test_zero_directions_capture_nothing():
    memory = memory_of(gradients(3))
    nothing = combine(memory, torch.zeros(3, 2, dtype=torch.float64))
    assert captured(memory, nothing, Identity(), memory.like) == 0
    part = combine(memory, torch.eye(3, 2, dtype=torch.float64) * torch.tensor([1.0, 0.0]))
    assert captured(memory, part, Identity(), memory.like) > 0


def test_losses_add_up_over_compressions():
    """Three tasks on axes of their own, compressed twice: the share of all that was ever stored."""
    memory = memory_of(gradients(4))
    lengths = torch.tensor([4.0, 3.0, 2.0, 1.0], dtype=torch.float64)
    error = lost_share(lengths, torch.tensor(7.0), memory)
    assert error == pytest.approx(0.3)
    memory = replace(memory, error=error, shares=(2, 3))
    again = lost_share(
        torch.tensor([4.0, 3.0, 5.0, 3.0, 2.0], dtype=torch.float64), torch.tensor(12.0, dtype=torch.float64), memory
    )
    assert again == pytest.approx(1 - 12 / 20)


def test_nothing_stored_is_nothing_lost():
    assert lost_share(torch.zeros(2, 3), torch.zeros(2), memory_of(gradients(3))).tolist() == [0.0, 0.0]
