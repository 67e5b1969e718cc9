import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fopng.gradients.layers import DenseGradients, LinearGradients, layer_gradients

CLOSE = {"rtol": 1e-12, "atol": 1e-12}


def written_out(a, d, bias):
    """`sum_t d_t a_t^T` and `sum_t d_t`, one gradient after another."""
    rows = []
    for k in range(a.shape[0]):
        weight = sum(torch.outer(d[k, t], a[k, t]) for t in range(a.shape[1]))
        rows.append(torch.cat([weight.flatten(), d[k].sum(0)]) if bias else weight.flatten())
    return torch.stack(rows)


@st.composite
def linear(draw):
    sizes = [draw(st.integers(1, 4)) for _ in range(4)]
    m, t, i, o = sizes
    lead = draw(st.sampled_from([(), (2,), (2, 3)]))
    torch.manual_seed(draw(st.integers(0, 99)))
    bias = draw(st.booleans())
    a, d = torch.randn(*lead, m, t, i, dtype=torch.float64), torch.randn(*lead, m, t, o, dtype=torch.float64)
    pairs = zip(a.reshape(-1, m, t, i), d.reshape(-1, m, t, o), strict=True)
    dense = torch.stack([written_out(*pair, bias) for pair in pairs]).reshape(*lead, m, -1)
    return LinearGradients(a, d, bias=bias), dense


@given(linear())
def test_linear_gradients_are_the_matrix_they_stand_for(pair):
    factored, dense = pair
    _check(factored, dense)


@given(linear())
def test_dense_gradients_are_the_matrix_they_hold(pair):
    _, dense = pair
    _check(DenseGradients(dense), dense)


def _check(layer, dense):
    c, x = torch.randn(dense.shape[:-1], dtype=dense.dtype), torch.randn(*dense.shape[:-2], dense.shape[-1]).double()
    assert (layer.count, layer.size, layer.lead) == (dense.shape[-2], dense.shape[-1], dense.shape[:-2])
    torch.testing.assert_close(layer.matvec(c), torch.einsum("...mq,...m->...q", dense, c), **CLOSE)
    torch.testing.assert_close(layer.rmatvec(x), torch.einsum("...mq,...q->...m", dense, x), **CLOSE)
    torch.testing.assert_close(layer.sum_squares(), (dense**2).sum(-2), **CLOSE)
    for start in range(layer.size):
        for stop in range(start + 1, layer.size + 1):
            torch.testing.assert_close(layer.slab(start, stop), dense[..., start:stop], **CLOSE)
    rows = torch.tensor([dense.shape[-2] - 1, 0])
    torch.testing.assert_close(layer.select(rows).slab(0, layer.size), dense[..., rows, :], **CLOSE)
    joined = layer.append(layer.select(rows))
    torch.testing.assert_close(joined.slab(0, layer.size), torch.cat([dense, dense[..., rows, :]], -2), **CLOSE)
    restored = layer_gradients(layer.tensors(), size=layer.size)
    assert type(restored) is type(layer)
    torch.testing.assert_close(restored.slab(0, layer.size), dense, **CLOSE)
    if layer.gram() is not None:
        torch.testing.assert_close(layer.gram(), dense @ dense.mT, **CLOSE)


@given(linear())
def test_factors_without_replicas_meet_vectors_with_them(pair):
    factored, dense = pair
    if dense.dim() == 2:
        x, c = torch.randn(3, dense.shape[1]).double(), torch.randn(3, dense.shape[0]).double()
        torch.testing.assert_close(factored.rmatvec(x), x @ dense.T, **CLOSE)
        torch.testing.assert_close(factored.matvec(c), c @ dense, **CLOSE)


def test_one_position_has_a_gram_shortcut():
    assert LinearGradients(torch.ones(2, 1, 3), torch.ones(2, 1, 4), bias=True).gram() is not None


def test_bytes_are_those_of_the_factors():
    assert LinearGradients(torch.ones(2, 1, 3), torch.ones(2, 1, 4), bias=True).nbytes == 4 * (2 * 3 + 2 * 4)


def test_unlike_gradients_do_not_join():
    linear, dense = (
        LinearGradients(torch.ones(2, 1, 3), torch.ones(2, 1, 4), bias=True),
        DenseGradients(torch.ones(2, 16)),
    )
    longer = LinearGradients(torch.ones(2, 2, 3), torch.ones(2, 2, 4), bias=True)
    assert linear.append(dense) is None
    assert dense.append(linear) is None
    assert linear.append(longer) is None


def test_errors():
    with pytest.raises(ValueError, match="agree but for the last axis"):
        LinearGradients(torch.ones(2, 1, 3), torch.ones(3, 1, 4), bias=True)
    with pytest.raises(ValueError, match=r"got \['b'\]"):
        layer_gradients({"b": torch.ones(2)}, size=2)
