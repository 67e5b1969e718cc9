import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from flat import flat, named
from fopng.core.vector import Vector
from fopng.curvature.metric import Diagonal, Full, Identity
from fopng.gradients.directions import ScaledBasis
from fopng.gradients.layers import DenseGradients, SampleGradients
from fopng.memory.gradients import GradientMemory

CLOSE = {"rtol": 1e-10, "atol": 1e-12}


def shapes(p: int) -> dict[str, torch.Size]:
    return {"w": torch.Size([p])}


def vector(x: torch.Tensor) -> Vector:
    return named(x, shapes(x.shape[-1]))


def memory(rows: torch.Tensor) -> GradientMemory:
    layers = {("w",): DenseGradients((rows,), rows.dim() - 2)}
    return GradientMemory().appended(SampleGradients(layers, rows.shape[-2]))


@given(
    st.integers(1, 6), st.integers(1, 4), st.sampled_from([(), (2,), (2, 3)]), st.floats(1e-3, 10), st.integers(0, 99)
)
def test_every_metric_is_the_matrix_it_stands_for(p, m, lead, damping, seed):
    torch.manual_seed(seed)
    values = torch.rand(*lead, p, dtype=torch.float64)
    half = torch.randn(*lead, p, p, dtype=torch.float64)
    eye = torch.eye(p, dtype=torch.float64)
    for metric, F in (
        (Identity(), eye.expand(*lead, p, p)),
        (Diagonal(vector(values), damping=damping), torch.diag_embed(values) + damping * eye),
        (Full(half @ half.mT, shapes(p), damping=damping), half @ half.mT + damping * eye),
    ):
        x, y = torch.randn(2, *lead, p, dtype=torch.float64)
        rows = torch.randn(*lead, m, p, dtype=torch.float64)
        u, v = vector(x), vector(y)
        torch.testing.assert_close(flat(metric.matvec(v), shapes(p)), (F @ y[..., None])[..., 0], **CLOSE)
        solved = torch.linalg.solve(F, y)
        torch.testing.assert_close(flat(metric.solve(v), shapes(p)), solved, rtol=1e-8, atol=1e-8)
        torch.testing.assert_close(metric.inner(u, v), torch.einsum("...p,...pq,...q->...", x, F, y), **CLOSE)
        torch.testing.assert_close(metric.norm(v), torch.einsum("...p,...pq,...q->...", y, F, y).sqrt(), **CLOSE)
        expected = rows @ torch.linalg.solve(F, rows.mT)
        torch.testing.assert_close(metric.inverse_gram(memory(rows)), expected, rtol=1e-8, atol=1e-8)
        scaled = ScaledBasis(memory(rows), vector(values))
        expected = (rows * values[..., None, :]) @ torch.linalg.solve(F, (rows * values[..., None, :]).mT)
        torch.testing.assert_close(metric.inverse_gram(scaled), expected, rtol=1e-8, atol=1e-8)


def test_a_damping_for_each_replica():
    values, damping = torch.rand(3, 2).double(), torch.tensor([0.1, 1.0, 10.0]).double()
    torch.testing.assert_close(Diagonal(vector(values), damping=damping).values["w"], values + damping[:, None])
    full = Full(torch.diag_embed(values), shapes(2), damping=damping)
    torch.testing.assert_close(full.matrix, torch.diag_embed(values + damping[:, None]))


def test_a_shared_full_metric_meets_replicas():
    metric = Full(torch.diag(torch.tensor([1.0, 3.0])).double(), shapes(2), damping=1.0)
    solved = flat(metric.solve(vector(torch.ones(5, 2).double())), shapes(2))
    torch.testing.assert_close(solved, torch.tensor([0.5, 0.25]).double().expand(5, 2))


@pytest.mark.parametrize("values", [[0.0, 1.0], [-1.0, 1.0], [float("nan"), 1.0], [float("inf"), 1.0]])
def test_what_is_not_positive_definite_is_refused(values):
    with pytest.raises(ValueError, match=r"positive definite metric.*damping=0.0"):
        Diagonal(vector(torch.tensor(values)), damping=0.0)
    with pytest.raises(ValueError, match=r"positive definite metric.*damping=0.0"):
        Full(torch.diag(torch.tensor(values)), shapes(2), damping=0.0)
