"""Low rank plus diagonal, against the matrix written out."""

import pytest
import torch
from torch import nn

from flat import flat, named
from fopng.curvature.estimate import low_rank_fisher
from fopng.curvature.low_rank import LowRankPlusDiagonal, averaged, leading_rows
from fopng.gradients.directions import ScaledBasis
from fopng.gradients.layers import DenseGradients, SampleGradients
from fopng.gradients.per_sample import PerSampleGradients
from fopng.memory.gradients import GradientMemory
from streams import BatchStream

CLOSE = {"rtol": 1e-9, "atol": 1e-11}
P = 7
SHAPES = {"weight": torch.Size([2, 3]), "scale": torch.Size([])}


def random(*shape):
    return torch.randn(*shape, dtype=torch.float64)


def nearest_rows(R, rank):
    return flat(leading_rows(named(R, SHAPES), rank), SHAPES)


def metric_of(lead, rank=3):
    damping = torch.rand(lead, dtype=torch.float64) + 0.1 if lead else 0.3
    values, rows = torch.rand(*lead, P, dtype=torch.float64), random(*lead, rank, P)
    added = damping.unsqueeze(-1) if lead else damping
    metric = LowRankPlusDiagonal(named(values, SHAPES), named(rows, SHAPES), damping=damping)
    return metric, torch.diag_embed(values + added) + rows.mT @ rows


@pytest.mark.parametrize("lead", [(), (3,)])
@pytest.mark.parametrize("rank", [1, 3, P + 2])
def test_every_operation_is_that_of_the_matrix(lead, rank):
    metric, F = metric_of(lead, rank)
    v = random(*lead, P)
    own = named(v, SHAPES)
    torch.testing.assert_close(flat(metric.matvec(own), SHAPES), (F @ v.unsqueeze(-1)).squeeze(-1), **CLOSE)
    solved = torch.linalg.solve(F, v.unsqueeze(-1)).squeeze(-1)
    torch.testing.assert_close(flat(metric.solve(own), SHAPES), solved, **CLOSE)
    torch.testing.assert_close(metric.norm(own).square(), (v.unsqueeze(-2) @ F @ v.unsqueeze(-1)).squeeze(), **CLOSE)


@pytest.mark.parametrize("lead", [(), (3,)])
@pytest.mark.parametrize("scaled", [False, True])
def test_the_gram_matrix_of_stored_gradients(lead, scaled):
    metric, F = metric_of(lead)
    rows = named(random(*lead, 4, P), SHAPES)
    layers = {tuple(SHAPES): DenseGradients(tuple(rows.parts.values()), len(lead))}
    memory = GradientMemory().appended(SampleGradients(layers, 4))
    scale = named(torch.rand(*lead, P, dtype=torch.float64), SHAPES)
    basis = ScaledBasis(memory, scale) if scaled else memory
    B = flat(basis.rows(), SHAPES).mT
    torch.testing.assert_close(metric.inverse_gram(basis), B.mT @ torch.linalg.solve(F, B), **CLOSE)


def test_rows_of_zeros_are_none():
    ones = named(torch.ones(P), SHAPES)
    metric = LowRankPlusDiagonal(ones, named(torch.zeros(2, P), SHAPES), damping=1.0)
    torch.testing.assert_close(flat(metric.solve(ones), SHAPES), torch.full((P,), 0.5))


@pytest.mark.parametrize("broken", [-2.0, torch.inf, torch.nan])
def test_a_metric_that_is_none_is_told(broken):
    values = torch.ones(P)
    values[2] = broken
    with pytest.raises(ValueError, match="Expected a positive definite metric, got a diagonal from"):
        LowRankPlusDiagonal(named(values, SHAPES), named(torch.zeros(1, P), SHAPES), damping=1.0)


@pytest.mark.parametrize("lead", [(), (3,)])
def test_the_leading_rows_are_the_nearest_of_their_rank_and_never_above(lead):
    R = random(*lead, 9, P)
    U = nearest_rows(R, 4)
    _, S, Vt = torch.linalg.svd(R, full_matrices=False)
    nearest = (Vt[..., :4, :].mT * S[..., None, :4].square()) @ Vt[..., :4, :]
    torch.testing.assert_close(U.mT @ U, nearest, **CLOSE)
    assert torch.linalg.eigvalsh(R.mT @ R - U.mT @ U).min() > -1e-10


def test_fewer_rows_than_the_rank_are_filled_up():
    R = random(2, P)
    assert torch.equal(nearest_rows(R, 4)[:2], R)
    assert nearest_rows(R, 4)[2:].abs().max() == 0


class Source:
    """Gradients of a small model, eight samples at a time."""

    def __init__(self):
        self.source = PerSampleGradients(nn.Sequential(nn.Linear(3, 2), nn.Tanh(), nn.Linear(2, 2)).double())
        self.batches = [(random(8, 3), torch.randint(2, (8,))) for _ in range(3)]

    def low_rank(self, rank):
        found = low_rank_fisher(self.source, BatchStream(self.batches), rank, labels="expected")
        return [flat(own, self.source.layout.shapes) for own in found]

    def fisher(self):
        found = [g.rows() for batch in self.batches for g in self.source.gradients(batch, "expected")]
        G = torch.cat([flat(rows, self.source.layout.shapes) for rows in found])
        return G.T @ G / 24


def test_at_full_rank_it_is_the_fisher():
    source = Source()
    d, U = source.low_rank(source.source.layout.size)
    torch.testing.assert_close(U.T @ U, source.fisher(), **CLOSE)
    assert d.abs().max() < 1e-12


@pytest.mark.parametrize("rank", [1, 2, 5])
def test_the_diagonal_is_that_of_the_fisher_at_any_rank(rank):
    source = Source()
    d, U = source.low_rank(rank)
    F = source.fisher()
    torch.testing.assert_close(d + U.square().sum(0), F.diagonal(), **CLOSE)
    assert U.shape == (rank, len(F))
    # it holds most of what the best of its rank would
    best = torch.linalg.eigvalsh(F)[-rank:].sum()
    assert 0.7 * best < U.square().sum() <= best * (1 + 1e-9)


def test_no_samples_are_told():
    with pytest.raises(ValueError, match="at least one sample"):
        low_rank_fisher(Source().source, BatchStream([]), 2)


@pytest.mark.parametrize("lead", [(), (2,)])
def test_an_average_keeps_its_diagonal_and_its_leading_part(lead):
    old, new = ((torch.rand(*lead, P, dtype=torch.float64), random(*lead, k, P)) for k in (3, 3))
    weight = torch.tensor([0.25, 1.0], dtype=torch.float64) if lead else 0.25
    w = weight[:, None, None] if lead else weight
    found = averaged(*(tuple(named(own, SHAPES) for own in pair) for pair in (old, new)), weight)
    d, U = (flat(own, SHAPES) for own in found)
    dense = [torch.diag_embed(values) + rows.mT @ rows for values, rows in (old, new)]
    exact = (1 - w) * dense[0] + w * dense[1]
    torch.testing.assert_close(d + U.square().sum(-2), exact.diagonal(dim1=-2, dim2=-1), **CLOSE)
    both = (1 - w) * old[1].mT @ old[1] + w * new[1].mT @ new[1]
    torch.testing.assert_close(
        torch.linalg.eigvalsh(U @ U.mT), torch.linalg.eigvalsh(both)[..., -3:], rtol=1e-8, atol=1e-9
    )
