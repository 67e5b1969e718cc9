"""Kronecker-factored Fishers by their eigenvectors, against the matrices written out."""

import pytest
import torch
from torch import nn

import oracle
from flat import flat, named
from fopng.core.layout import ParamLayout
from fopng.curvature.kronecker import KroneckerOperator, LayerBasis, Shrinkage
from fopng.curvature.moments import LayerMoments

EXACT = {"rtol": 1e-9, "atol": 1e-11}


def moment(size, *lead, samples=None):
    """A random second moment, of full rank unless there are fewer samples."""
    rows = torch.randn(*lead, samples or 2 * size, size, dtype=torch.float64)
    return rows.mT @ rows / rows.shape[-2]


def small_model(bias=True):
    """Two layers with something else between them."""
    return nn.Sequential(nn.Linear(4, 3, bias=bias), nn.LayerNorm(3), nn.Linear(3, 2, bias=bias)).double()


def fisher_of(model, *lead, rank=None):
    """A Kronecker-factored Fisher of a model, and its moments by layer."""
    layout = ParamLayout.of(model)
    found, layers = {}, {}
    for number in (0, 2):
        layer = model[number]
        bias = layer.bias is not None
        names = tuple(f"{number}.{name}" for name, _ in layer.named_parameters())
        found[layer] = moment(layer.in_features + bias, *lead), moment(layer.out_features, *lead)
        layers[names] = LayerBasis.of(LayerMoments(*found[layer]), bias=bias, rank=rank)
    diagonal = torch.rand(*lead, layout.size, dtype=torch.float64)
    inside = {name for names in layers for name in names}
    return KroneckerOperator(layers, named(diagonal, layout.shapes).without(inside)), found, diagonal


def applied(operator, model, g):
    """What an operator on Vectors makes of a flat tensor."""
    shapes = ParamLayout.of(model).shapes
    return flat(operator(named(g, shapes)), shapes)


@pytest.mark.parametrize("bias", [True, False])
def test_it_is_the_kronecker_product(bias):
    model = small_model(bias)
    fisher, found, diagonal = fisher_of(model)
    F = oracle.layerwise_fisher(model, found, diagonal)
    g = torch.randn(len(F), dtype=torch.float64)
    torch.testing.assert_close(applied(fisher, model, g), F @ g, **EXACT)
    eye = torch.eye(len(F), dtype=torch.float64)
    inverse = applied(fisher.map(lambda v: 1 / (v + 0.3)), model, g)
    torch.testing.assert_close(inverse, torch.linalg.solve(F + 0.3 * eye, g), **EXACT)


def test_replicas_are_those_alone():
    model = small_model()
    fisher, found, diagonal = fisher_of(model, 3)
    g = torch.randn(3, diagonal.shape[-1], dtype=torch.float64)
    product, inverse = applied(fisher, model, g), applied(fisher.map(lambda v: 1 / (v + 0.3)), model, g)
    for r in range(3):
        alone = {layer: (A[r], G[r]) for layer, (A, G) in found.items()}
        F = oracle.layerwise_fisher(model, alone, diagonal[r])
        torch.testing.assert_close(product[r], F @ g[r], **EXACT)
        torch.testing.assert_close(F @ inverse[r] + 0.3 * inverse[r], g[r], **EXACT)


def averaged(A, rank):
    """A moment whose smallest eigenvalues are all their mean."""
    values, vectors = torch.linalg.eigh(A)
    values[:-rank] = values[:-rank].mean()
    return vectors @ torch.diag(values) @ vectors.T


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("rank", [1, 2, 3])
def test_inputs_beyond_the_rank_share_one_eigenvalue(bias, rank):
    model = small_model(bias)
    fisher, found, diagonal = fisher_of(model, rank=rank)
    alike = {layer: (averaged(A, rank) if rank < len(A) else A, G) for layer, (A, G) in found.items()}
    F = oracle.layerwise_fisher(model, alike, diagonal)
    g = torch.randn(len(F), dtype=torch.float64)
    torch.testing.assert_close(applied(fisher, model, g), F @ g, **EXACT)
    left = torch.linalg.solve(torch.eye(len(F), dtype=F.dtype) + 5 * F, g)
    torch.testing.assert_close(applied(fisher.map(lambda v: 1 / (1 + 5 * v)), model, g), left, **EXACT)


def test_large_layers_have_their_leading_eigenvectors(monkeypatch):
    """By iteration: what is kept is what the direct way keeps, where eigenvalues fall off as those of data do."""
    U = torch.linalg.qr(torch.randn(2, 60, 60, dtype=torch.float64)).Q
    A = (U * 0.7 ** torch.arange(60.0, dtype=torch.float64)) @ U.mT
    moments = LayerMoments(A, moment(3, 2))
    direct = LayerBasis.of(moments, bias=False, rank=6)
    monkeypatch.setattr("fopng.curvature.kronecker.DIRECT", 10)
    monkeypatch.setattr("fopng.curvature.kronecker.OVERSAMPLING", 4)
    found = LayerBasis.of(moments, bias=False, rank=6)
    torch.testing.assert_close(found.inputs.mT @ found.inputs, torch.eye(6, dtype=A.dtype).expand(2, 6, 6), **EXACT)
    torch.testing.assert_close(found.values, direct.values, rtol=1e-6, atol=0)
    torch.testing.assert_close(found.others, direct.others, rtol=1e-4, atol=0)
    g = torch.randn(2, 3, 60, dtype=A.dtype)
    torch.testing.assert_close(found.apply(g, None)[0], direct.apply(g, None)[0], rtol=1e-4, atol=1e-6)


def test_a_rank_beyond_the_layer_is_all_of_it():
    model = small_model()
    torch.manual_seed(0)
    whole, _, _ = fisher_of(model)
    torch.manual_seed(0)
    capped, _, _ = fisher_of(model, rank=100)
    g = torch.randn(ParamLayout.of(model).size, dtype=torch.float64)
    assert torch.equal(applied(whole, model, g), applied(capped, model, g))


def test_a_moment_of_few_samples_has_no_eigenvalue_below_zero():
    basis = LayerBasis.of(LayerMoments(moment(30, samples=3).float(), moment(4).float()), bias=False)
    assert basis.values.min() >= 0
    assert basis.values.dtype == torch.float32


@pytest.mark.parametrize("strength", [0.1, 3.0, 1e4])
def test_a_shrunk_gradient_still_descends_and_moves_old_answers_little(strength):
    """`g^T v >= |v|^2` and `v^T F v <= |g|^2 / 4s`, whatever F is."""
    model = small_model()
    fisher, _, _ = fisher_of(model)
    shrink = Shrinkage(fisher.map(lambda v: 1 / (1 + strength * v)))
    for _ in range(20):
        g = torch.randn(ParamLayout.of(model).size, dtype=torch.float64)
        v = applied(shrink, model, g)
        assert g @ v >= v @ v > 0
        assert v @ applied(fisher, model, v) <= g @ g / (4 * strength)
        torch.testing.assert_close(v + applied(shrink.removed, model, g), g, **EXACT)


def test_the_bound_is_reached():
    """A gradient along an eigenvector of eigenvalue `1/s`: the bound is no looser than it must be."""
    model = small_model()
    fisher, found, diagonal = fisher_of(model)
    values, vectors = torch.linalg.eigh(oracle.layerwise_fisher(model, found, diagonal))
    s, g = 1 / values[5], vectors[:, 5]
    v = applied(fisher.map(lambda own: 1 / (1 + s * own)), model, g)
    torch.testing.assert_close(v @ applied(fisher, model, v), g @ g / (4 * s), **EXACT)
