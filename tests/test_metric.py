import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fopng.core.layout import ParamLayout
from fopng.curvature.metric import Diagonal, Full, Identity
from fopng.gradients.directions import ScaledBasis
from fopng.gradients.layers import DenseGradients, SampleGradients
from fopng.memory.gradients import GradientMemory

CLOSE = {"rtol": 1e-10, "atol": 1e-12}


def memory(rows: torch.Tensor) -> GradientMemory:
    layout = ParamLayout({"w": rows.shape[-1:]})
    stored = GradientMemory(layout)
    stored.append(SampleGradients(layout, {("w",): DenseGradients(rows)}, rows.shape[-2]))
    return stored


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
        (Diagonal(values, damping=damping), torch.diag_embed(values) + damping * eye),
        (Full(half @ half.mT, damping=damping), half @ half.mT + damping * eye),
    ):
        u, v = torch.randn(2, *lead, p, dtype=torch.float64)
        rows = torch.randn(*lead, m, p, dtype=torch.float64)
        torch.testing.assert_close(metric.matvec(v), (F @ v[..., None])[..., 0], **CLOSE)
        torch.testing.assert_close(metric.solve(v), torch.linalg.solve(F, v), rtol=1e-8, atol=1e-8)
        torch.testing.assert_close(metric.inner(u, v), torch.einsum("...p,...pq,...q->...", u, F, v), **CLOSE)
        torch.testing.assert_close(metric.norm(v), torch.einsum("...p,...pq,...q->...", v, F, v).sqrt(), **CLOSE)
        expected = rows @ torch.linalg.solve(F, rows.mT)
        torch.testing.assert_close(metric.inverse_gram(memory(rows)), expected, rtol=1e-8, atol=1e-8)
        scaled = ScaledBasis(memory(rows), values)
        expected = (rows * values[..., None, :]) @ torch.linalg.solve(F, (rows * values[..., None, :]).mT)
        torch.testing.assert_close(metric.inverse_gram(scaled), expected, rtol=1e-8, atol=1e-8)


def test_a_damping_for_each_replica():
    values, damping = torch.rand(3, 2).double(), torch.tensor([0.1, 1.0, 10.0]).double()
    torch.testing.assert_close(Diagonal(values, damping=damping).values, values + damping[:, None])
    full = Full(torch.diag_embed(values), damping=damping)
    torch.testing.assert_close(full.matrix, torch.diag_embed(values + damping[:, None]))


def test_a_shared_full_metric_meets_replicas():
    metric = Full(torch.diag(torch.tensor([1.0, 3.0])).double(), damping=1.0)
    torch.testing.assert_close(metric.solve(torch.ones(5, 2).double()), torch.tensor([0.5, 0.25]).double().expand(5, 2))


@pytest.mark.parametrize("values", [[0.0, 1.0], [-1.0, 1.0], [float("nan"), 1.0], [float("inf"), 1.0]])
def test_what_is_not_positive_definite_is_refused(values):
    with pytest.raises(ValueError, match=r"positive definite metric.*damping=0.0"):
        Diagonal(torch.tensor(values), damping=0.0)
    with pytest.raises(ValueError, match=r"positive definite metric.*damping=0.0"):
        Full(torch.diag(torch.tensor(values)), damping=0.0)
