import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from flat import named
from fopng.core.tree import bytes_of, from_plain, to_plain
from fopng.gradients.layers import DenseGradients, LinearGradients

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
    """Factors, the matrix `[*lead, m, q]` that they stand for, and the shapes of the parameters in its columns."""
    sizes = [draw(st.integers(1, 4)) for _ in range(4)]
    m, t, i, o = sizes
    lead = draw(st.sampled_from([(), (2,), (2, 3)]))
    torch.manual_seed(draw(st.integers(0, 99)))
    bias = draw(st.booleans())
    a, d = torch.randn(*lead, m, t, i, dtype=torch.float64), torch.randn(*lead, m, t, o, dtype=torch.float64)
    pairs = zip(a.reshape(-1, m, t, i), d.reshape(-1, m, t, o), strict=True)
    dense = torch.stack([written_out(*pair, bias) for pair in pairs]).reshape(*lead, m, -1)
    return LinearGradients(a, d, bias), dense, (torch.Size((o, i)), torch.Size((o,)))[: 1 + bias]


def parts(flat, shapes):
    """A tensor `[..., q]` as one of each parameter, `[..., *shape]`."""
    return tuple(named(flat, dict(enumerate(shapes))).parts.values())


@given(linear())
def test_linear_gradients_are_the_matrix_they_stand_for(case):
    factored, dense, shapes = case
    _check(factored, dense, shapes)


@given(linear())
def test_dense_gradients_are_the_matrix_they_hold(case):
    _, dense, shapes = case
    _check(DenseGradients(parts(dense, shapes), dense.dim() - 2), dense, shapes)


def _check(layer, dense, shapes):
    c, x = torch.randn(dense.shape[:-1], dtype=dense.dtype), torch.randn(*dense.shape[:-2], dense.shape[-1]).double()
    assert (layer.count, layer.shapes, layer.lead) == (dense.shape[-2], shapes, dense.shape[:-2])
    combined = parts(torch.einsum("...mq,...m->...q", dense, c), shapes)
    torch.testing.assert_close(layer.combine(c), combined, **CLOSE)
    torch.testing.assert_close(layer.rmatvec(parts(x, shapes)), torch.einsum("...mq,...q->...m", dense, x), **CLOSE)
    torch.testing.assert_close(layer.sum_squares(), parts((dense**2).sum(-2), shapes), **CLOSE)
    _check_rows(layer, dense, shapes)
    for k, own in enumerate(parts(dense, shapes)):
        columns = own.flatten(dense.dim() - 1)
        for start in range(columns.shape[-1]):
            for stop in range(start + 1, columns.shape[-1] + 1):
                torch.testing.assert_close(layer.slab(k, start, stop), columns[..., start:stop], **CLOSE)
    rows = torch.tensor([dense.shape[-2] - 1, 0])
    _check_rows(layer.select(rows), dense[..., rows, :], shapes)
    _check_rows(layer.append(layer.select(rows)), torch.cat([dense, dense[..., rows, :]], -2), shapes)
    restored = from_plain(to_plain(layer))
    assert type(restored) is type(layer)
    _check_rows(restored, dense, shapes)
    if layer.gram() is not None:
        torch.testing.assert_close(layer.gram(), dense @ dense.mT, **CLOSE)


def _check_rows(layer, dense, shapes):
    torch.testing.assert_close(tuple(map(layer.rows, range(len(shapes)))), parts(dense, shapes), **CLOSE)


@given(linear())
def test_factors_without_replicas_meet_vectors_with_them(case):
    factored, dense, shapes = case
    if dense.dim() == 2:
        x, c = torch.randn(3, dense.shape[1]).double(), torch.randn(3, dense.shape[0]).double()
        torch.testing.assert_close(factored.rmatvec(parts(x, shapes)), x @ dense.T, **CLOSE)
        torch.testing.assert_close(factored.combine(c), parts(c @ dense, shapes), **CLOSE)


def test_one_position_has_a_gram_shortcut():
    assert LinearGradients(torch.ones(2, 1, 3), torch.ones(2, 1, 4), bias=True).gram() is not None


def test_bytes_are_those_of_the_factors():
    assert bytes_of(LinearGradients(torch.ones(2, 1, 3), torch.ones(2, 1, 4), bias=True)) == 4 * (2 * 3 + 2 * 4)


def test_unlike_gradients_do_not_join():
    linear, dense = (
        LinearGradients(torch.ones(2, 1, 3), torch.ones(2, 1, 4), bias=True),
        DenseGradients((torch.ones(2, 4, 3), torch.ones(2, 4))),
    )
    longer = LinearGradients(torch.ones(2, 2, 3), torch.ones(2, 2, 4), bias=True)
    assert linear.append(dense) is None
    assert dense.append(linear) is None
    assert linear.append(longer) is None


def test_errors():
    with pytest.raises(ValueError, match="agree but for the last axis"):
        LinearGradients(torch.ones(2, 1, 3), torch.ones(3, 1, 4), bias=True)
    with pytest.raises(ValueError, match="got one with 'Gradients' in it"):
        from_plain({"node": "Gradients", "b": torch.ones(2)})
