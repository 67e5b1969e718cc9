"""KFAC and EKFAC as metrics, against the matrices written out."""

import pytest
import torch
from torch import nn

import oracle
from flat import flat, named, span
from fopng.core.vector import Vector
from fopng.curvature.estimate import layer_moments, squares_along
from fopng.curvature.fishers import KFACFisher
from fopng.curvature.kfac import EigenCorrected, Kronecker, kronecker_times
from fopng.curvature.kronecker import KroneckerOperator, LayerBasis
from fopng.curvature.sampling import LoaderStream
from fopng.gradients.directions import CombinedBasis, ScaledBasis
from fopng.gradients.layers import DenseGradients, LinearGradients, SampleGradients
from fopng.gradients.per_sample import PerSampleGradients
from fopng.memory.gradients import GradientMemory

EXACT = {"rtol": 1e-8, "atol": 1e-10}
DAMPING = 0.1


def dense_model(bias=True):
    return nn.Sequential(nn.Linear(4, 3, bias=bias), nn.LayerNorm(3), nn.Linear(3, 2, bias=bias)).double()


def conv_model():
    return nn.Sequential(nn.Conv2d(2, 3, 2), nn.Tanh(), nn.Flatten(), nn.Linear(12, 2)).double()


MODELS = {
    "linear": (dense_model, (4,)),
    "no bias": (lambda: dense_model(bias=False), (4,)),
    "convolution": (conv_model, (2, 3, 3)),
}


def world(name, n=6):
    make, shape = MODELS[name]
    model = make()
    return model, (torch.randn(n, *shape, dtype=torch.float64), torch.arange(n) % 2)


def module_of(model, names):
    return dict(model.named_modules())[names[0].rpartition(".")[0]]


def by_module(model, moments):
    """What the oracle takes."""
    return {module_of(model, names): (own.inputs, own.signals) for names, own in moments.layers.items()}


def moments_of(model, batch):
    """The moments by layer, and the diagonal of everything else, once by name and once flat."""
    source = PerSampleGradients(model)
    moments = layer_moments(source, LoaderStream([batch]), signals="observed")
    zeros = {name: torch.zeros(shape, dtype=torch.float64) for name, shape in source.layout.shapes.items()}
    return moments, flat(Vector({**zeros, **moments.rest.parts}), source.layout.shapes)


def shapes_of(model):
    return PerSampleGradients(model).layout.shapes


def joined(parts, shapes):
    """Tensors of a layer's parameters, `[*lead, *shape]` each, as one."""
    lead = parts[0].dim() - len(next(iter(shapes.values())))
    return flat(Vector(dict(zip(shapes, parts, strict=True)), lead), shapes)


def rows_of(gradients, shapes):
    return joined([gradients.rows(k) for k in range(len(shapes))], shapes)


def kfac(model, batch):
    """The metric, and the matrix that it is."""
    moments, rest = moments_of(model, batch)
    metric = Kronecker(moments.layers, moments.rest, damping=DAMPING)
    split = {}
    for layer, (A, G) in by_module(model, moments).items():
        pi = ((A.trace() / len(A)) / (G.trace() / len(G))).sqrt()
        eyes = torch.eye(len(A), dtype=A.dtype), torch.eye(len(G), dtype=A.dtype)
        split[layer] = A + pi * DAMPING**0.5 * eyes[0], G + DAMPING**0.5 / pi * eyes[1]
    return metric, oracle.layerwise_fisher(model, split, rest + DAMPING)


def ekfac(model, batch):
    """The metric, and the matrix that it is: eigenvectors of KFAC, mean squares along them."""
    source = PerSampleGradients(model)
    moments, rest = moments_of(model, batch)
    bases = {names: LayerBasis.of(own, bias=len(names) > 1) for names, own in moments.layers.items()}
    squares = squares_along(source, LoaderStream([batch]), bases, labels="observed")
    fisher = KroneckerOperator(
        {n: LayerBasis(b.inputs, b.signals, squares[n], None, bias=b.bias) for n, b in bases.items()},
        moments.rest,
    )
    rows = oracle.sample_gradients(model, batch, len(batch[0]))
    F = torch.diag(rest)
    for names, basis in bases.items():
        layer = module_of(model, names)
        o, i = layer.weight.shape[0], layer.weight[0].numel()
        part = span(source.layout.shapes, names)
        order = torch.arange(o * i).reshape(o, i)
        if layer.bias is not None:
            order = torch.cat([order, o * i + torch.arange(o)[:, None]], 1)
        order = order.flatten() + part.start
        U = torch.kron(basis.signals, basis.inputs)
        F[order[:, None], order] = U @ torch.diag((rows[:, order] @ U).square().mean(0)) @ U.T
    return EigenCorrected(fisher, damping=DAMPING), F + DAMPING * torch.eye(len(F), dtype=F.dtype)


METRICS = {"kfac": kfac, "ekfac": ekfac}
every_case = pytest.mark.parametrize(("build", "name"), [(b, n) for b in METRICS for n in MODELS])


def stored(model, batch, parts=((0, 4), (4, 6))):
    """A memory of two tasks, and its gradients written out."""
    source = PerSampleGradients(model)
    memory = GradientMemory()
    for start, stop in parts:
        piece = tuple(t[start:stop] for t in batch)
        memory = memory.appended(*source.gradients(piece, "ground-truth"))
    return memory, oracle.sample_gradients(model, batch, len(batch[0]), oracle.ground_truth_logit)


@every_case
def test_it_multiplies_and_solves(build, name):
    model, batch = world(name)
    metric, F = METRICS[build](model, batch)
    shapes, v = shapes_of(model), torch.randn(len(F), dtype=torch.float64)
    own = named(v, shapes)
    torch.testing.assert_close(flat(metric.matvec(own), shapes), F @ v, **EXACT)
    torch.testing.assert_close(flat(metric.solve(own), shapes), torch.linalg.solve(F, v), **EXACT)
    torch.testing.assert_close(metric.norm(own), (v @ F @ v).sqrt(), **EXACT)


@every_case
def test_gram_matrices(build, name):
    model, batch = world(name)
    metric, F = METRICS[build](model, batch)
    memory, rows = stored(model, batch)
    expected = rows @ torch.linalg.solve(F, rows.T)
    torch.testing.assert_close(metric.inverse_gram(memory), expected, **EXACT)
    mix = torch.randn(6, 6, dtype=torch.float64)
    torch.testing.assert_close(metric.inverse_gram(CombinedBasis(memory, mix)), mix.T @ expected @ mix, **EXACT)
    scale = torch.rand(len(F), dtype=torch.float64)
    scaled, basis = rows * scale, ScaledBasis(memory, named(scale, shapes_of(model)))
    torch.testing.assert_close(metric.inverse_gram(basis), scaled @ torch.linalg.solve(F, scaled.T), **EXACT)


@every_case
def test_gram_matrices_of_weighted_gradients(build, name):
    """PreFisher's, which have a diagonal in front."""
    model, batch = world(name)
    metric, F = METRICS[build](model, batch)
    weight = torch.rand(len(F), dtype=torch.float64)
    source = PerSampleGradients(model)
    gradients = source.gradients(batch, "ground-truth")
    memory = GradientMemory().appended(*gradients, weight=named(weight, shapes_of(model)))
    rows = oracle.sample_gradients(model, batch, 6, oracle.ground_truth_logit) * weight
    torch.testing.assert_close(metric.inverse_gram(memory), rows @ torch.linalg.solve(F, rows.T), **EXACT)


def test_small_pieces_of_a_gram_matrix_add_up(monkeypatch):
    model, batch = world("linear")
    metric, _ = ekfac(model, batch)
    memory, _ = stored(model, batch)
    whole = metric.inverse_gram(memory)
    monkeypatch.setattr("fopng.curvature.kfac.CHUNK", 1)
    torch.testing.assert_close(metric.inverse_gram(memory), whole, **EXACT)


def test_a_linear_layer_and_one_sample_are_exact():
    """`A kron G` is `g g^T` then, and so is EKFAC."""
    model = nn.Linear(4, 3).double()
    batch = torch.randn(1, 4, dtype=torch.float64), torch.tensor([1])
    moments, _ = moments_of(model, batch)
    [(names, own)] = moments.layers.items()
    g = oracle.sample_gradients(model, batch, 1)[0]
    F = torch.outer(g, g)
    torch.testing.assert_close(oracle.layerwise_fisher(model, {model: (own.inputs, own.signals)}, 0 * g), F, **EXACT)
    bases = {names: LayerBasis.of(own, bias=True)}
    squares = squares_along(PerSampleGradients(model), LoaderStream([batch]), bases, labels="observed")
    torch.testing.assert_close(squares[names], bases[names].values, **EXACT)


@pytest.mark.parametrize("name", MODELS)
def test_gradients_stay_factored_under_a_kronecker_product(name):
    model, batch = world(name)
    source = PerSampleGradients(model)
    moments, rest = moments_of(model, batch)
    F = oracle.layerwise_fisher(model, by_module(model, moments), rest)
    rows = oracle.sample_gradients(model, batch, 6, oracle.ground_truth_logit)
    [gradients] = source.gradients(batch, "ground-truth")
    x, c = torch.randn(len(F), dtype=torch.float64), torch.randn(6, dtype=torch.float64)
    for names, own in gradients.layers.items():
        if names not in moments.layers:
            continue
        found = kronecker_times(moments.layers[names], own)
        part = span(source.layout.shapes, names)
        expected, here = (rows @ F)[:, part], {name: source.layout.shapes[name] for name in names}
        assert isinstance(found, LinearGradients) == isinstance(own, LinearGradients)
        torch.testing.assert_close(rows_of(found, here), expected, **EXACT)
        for k, whole in enumerate(named(expected, here).parts.values()):
            columns = whole.flatten(1)[:, 1:-1]
            torch.testing.assert_close(found.slab(k, 1, 1 + columns.shape[1]), columns, **EXACT)
        given = list(named(x[part], here).parts.values())
        torch.testing.assert_close(found.rmatvec(given), expected @ x[part], **EXACT)
        torch.testing.assert_close(joined(found.combine(c), here), expected.T @ c, **EXACT)
        torch.testing.assert_close(joined(found.sum_squares(), here), expected.square().sum(0), **EXACT)
        if found.gram() is not None:
            torch.testing.assert_close(found.gram(), expected @ expected.T, **EXACT)
        kept = found.select(torch.tensor([4, 1]))
        torch.testing.assert_close(rows_of(kept.append(kept), here), expected[[4, 1, 4, 1]], **EXACT)


@pytest.mark.parametrize("apart", [False, True], ids=["by layer", "by parameter"])
@pytest.mark.parametrize("name", MODELS)
def test_the_fisher_times_what_is_stored(name, apart):
    """However it is stored: a weight apart from its bias has no factors, and the same product."""
    model, batch = world(name)
    source = PerSampleGradients(model)
    moments, rest = moments_of(model, batch)
    F = oracle.layerwise_fisher(model, by_module(model, moments), rest)
    rows = oracle.sample_gradients(model, batch, 6, oracle.ground_truth_logit)
    shapes = source.layout.shapes
    if apart:
        pieces = {(n,): DenseGradients((part,)) for n, part in named(rows, shapes).parts.items()}
        memory = GradientMemory().appended(SampleGradients(pieces, 6))
    else:
        memory = GradientMemory().appended(*source.gradients(batch, "ground-truth"))
    basis = KFACFisher(moments).times(memory)
    x, c = torch.randn(len(F), dtype=torch.float64), torch.randn(6, dtype=torch.float64)
    torch.testing.assert_close(flat(basis.rows(), shapes), rows @ F, **EXACT)
    torch.testing.assert_close(basis.rmatvec(named(x, shapes)), rows @ F @ x, **EXACT)
    torch.testing.assert_close(flat(basis.matvec(c), shapes), F @ rows.T @ c, **EXACT)
    metric, damped = kfac(model, batch)
    expected = rows @ F @ torch.linalg.solve(damped, F @ rows.T)
    torch.testing.assert_close(metric.inverse_gram(basis), expected, **EXACT)
    weights = torch.rand(len(F), dtype=torch.float64)
    torch.testing.assert_close(basis.gram(named(weights, shapes)), (rows @ F * weights) @ F @ rows.T, **EXACT)


@pytest.mark.parametrize("build", METRICS)
def test_a_layer_without_signal_is_damped_alone(build):
    """Nothing comes back to it: the metric there is the damping."""
    model, (x, y) = world("linear")
    model[2].weight.data.zero_()
    metric, F = METRICS[build](model, (x, y))
    v = torch.randn(len(F), dtype=torch.float64)
    assert metric.solve(named(v, shapes_of(model))).finite()


def test_a_metric_that_is_not_positive_is_refused():
    model, batch = world("linear")
    moments = layer_moments(PerSampleGradients(model), LoaderStream([batch])).layers["2.weight", "2.bias"]
    with pytest.raises(ValueError, match="Raise damping"):
        Kronecker({("weight", "bias"): moments}, Vector({}), damping=float("nan"))
