"""KFAC and EKFAC as metrics, against the matrices written out."""

import pytest
import torch
from torch import nn

import oracle
from fopng.core.layout import ParamLayout
from fopng.curvature.kfac import EigenCorrected, Kronecker, kronecker_times
from fopng.curvature.kinds import Estimate, KFACKind, pack
from fopng.curvature.kronecker import KroneckerFisher, LayerBasis, SquareSums
from fopng.curvature.moments import layer_moments
from fopng.gradients.directions import MixedBasis, ScaledBasis
from fopng.gradients.layers import DenseGradients, LinearGradients, SampleGradients
from fopng.gradients.per_sample import GradientSource
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


def kfac(model, batch):
    """The metric, and the matrix that it is."""
    source = GradientSource(model)
    moments = layer_moments(source, [batch], signals="observed")
    metric = Kronecker(source.layout, moments.layers, moments.rest, damping=DAMPING)
    split = {}
    for layer, (A, G) in by_module(model, moments).items():
        pi = ((A.trace() / len(A)) / (G.trace() / len(G))).sqrt()
        eyes = torch.eye(len(A), dtype=A.dtype), torch.eye(len(G), dtype=A.dtype)
        split[layer] = A + pi * DAMPING**0.5 * eyes[0], G + DAMPING**0.5 / pi * eyes[1]
    return metric, oracle.layerwise_fisher(model, split, moments.rest + DAMPING)


def ekfac(model, batch):
    """The metric, and the matrix that it is: eigenvectors of KFAC, mean squares along them."""
    source = GradientSource(model)
    moments = layer_moments(source, [batch], signals="observed")
    bases = {names: LayerBasis.of(own, bias=len(names) > 1) for names, own in moments.layers.items()}
    sums = SquareSums(source, "observed", bases)
    sums.add(batch)
    squares = sums.mean()
    fisher = KroneckerFisher(
        source.layout,
        {n: LayerBasis(b.inputs, b.signals, squares[n], None, bias=b.bias) for n, b in bases.items()},
        moments.rest,
    )
    rows = oracle.sample_gradients(model, batch, len(batch[0]))
    F = torch.diag(moments.rest)
    for names, basis in bases.items():
        layer = module_of(model, names)
        o, i = layer.weight.shape[0], layer.weight[0].numel()
        part = source.layout.span(names)
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
    source = GradientSource(model)
    memory = GradientMemory(source.layout)
    for start, stop in parts:
        piece = tuple(t[start:stop] for t in batch)
        memory.append(*source.gradients(piece, "ground-truth"))
    return memory, oracle.sample_gradients(model, batch, len(batch[0]), oracle.ground_truth_logit)


@every_case
def test_it_multiplies_and_solves(build, name):
    model, batch = world(name)
    metric, F = METRICS[build](model, batch)
    v = torch.randn(len(F), dtype=torch.float64)
    torch.testing.assert_close(metric.matvec(v), F @ v, **EXACT)
    torch.testing.assert_close(metric.solve(v), torch.linalg.solve(F, v), **EXACT)
    torch.testing.assert_close(metric.norm(v), (v @ F @ v).sqrt(), **EXACT)


@every_case
def test_gram_matrices(build, name):
    model, batch = world(name)
    metric, F = METRICS[build](model, batch)
    memory, rows = stored(model, batch)
    expected = rows @ torch.linalg.solve(F, rows.T)
    torch.testing.assert_close(metric.inverse_gram(memory), expected, **EXACT)
    mix = torch.randn(6, 6, dtype=torch.float64)
    torch.testing.assert_close(metric.inverse_gram(MixedBasis(memory, mix)), mix.T @ expected @ mix, **EXACT)
    scale = torch.rand(len(F), dtype=torch.float64)
    scaled = rows * scale
    torch.testing.assert_close(
        metric.inverse_gram(ScaledBasis(memory, scale)), scaled @ torch.linalg.solve(F, scaled.T), **EXACT
    )


@every_case
def test_gram_matrices_of_weighted_gradients(build, name):
    """PreFisher's, which have a diagonal in front."""
    model, batch = world(name)
    metric, F = METRICS[build](model, batch)
    weight = torch.rand(len(F), dtype=torch.float64)
    source = GradientSource(model)
    memory = GradientMemory(source.layout)
    memory.append(*source.gradients(batch, "ground-truth"), weight=weight)
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
    source = GradientSource(model)
    moments = layer_moments(source, [batch], signals="observed")
    [(names, own)] = moments.layers.items()
    g = oracle.sample_gradients(model, batch, 1)[0]
    F = torch.outer(g, g)
    torch.testing.assert_close(oracle.layerwise_fisher(model, {model: (own.inputs, own.signals)}, 0 * g), F, **EXACT)
    bases = {names: LayerBasis.of(own, bias=True)}
    sums = SquareSums(source, "observed", bases)
    sums.add(batch)
    torch.testing.assert_close(sums.mean()[names], bases[names].values, **EXACT)


@pytest.mark.parametrize("name", MODELS)
def test_gradients_stay_factored_under_a_kronecker_product(name):
    model, batch = world(name)
    source = GradientSource(model)
    moments = layer_moments(source, [batch], signals="observed")
    F = oracle.layerwise_fisher(model, by_module(model, moments), moments.rest)
    rows = oracle.sample_gradients(model, batch, 6, oracle.ground_truth_logit)
    [gradients] = source.gradients(batch, "ground-truth")
    x, c = torch.randn(len(F), dtype=torch.float64), torch.randn(6, dtype=torch.float64)
    for names, own in gradients.layers.items():
        if names not in moments.layers:
            continue
        found = kronecker_times(moments.layers[names], own, bias=len(names) > 1)
        part = source.layout.span(names)
        expected = (rows @ F)[:, part]
        assert isinstance(found, LinearGradients) == isinstance(own, LinearGradients)
        torch.testing.assert_close(found.slab(0, found.size), expected, **EXACT)
        torch.testing.assert_close(found.slab(1, found.size - 1), expected[:, 1:-1], **EXACT)
        torch.testing.assert_close(found.rmatvec(x[part]), expected @ x[part], **EXACT)
        torch.testing.assert_close(found.matvec(c), expected.T @ c, **EXACT)
        torch.testing.assert_close(found.sum_squares(), expected.square().sum(0), **EXACT)
        if found.gram() is not None:
            torch.testing.assert_close(found.gram(), expected @ expected.T, **EXACT)
        kept = found.select(torch.tensor([4, 1]))
        torch.testing.assert_close(kept.append(kept).slab(0, kept.size), expected[[4, 1, 4, 1]], **EXACT)


@pytest.mark.parametrize("apart", [False, True], ids=["by layer", "by parameter"])
@pytest.mark.parametrize("name", MODELS)
def test_the_fisher_times_what_is_stored(name, apart):
    """However it is stored: a weight apart from its bias has no factors, and the same product."""
    model, batch = world(name)
    source = GradientSource(model)
    moments = layer_moments(source, [batch], signals="observed")
    F = oracle.layerwise_fisher(model, by_module(model, moments), moments.rest)
    rows = oracle.sample_gradients(model, batch, 6, oracle.ground_truth_logit)
    memory = GradientMemory(source.layout)
    if apart:
        pieces = {(n,): DenseGradients(rows[:, part]) for n, part in source.layout.slices.items()}
        memory.append(SampleGradients(source.layout, pieces, 6))
    else:
        memory.append(*source.gradients(batch, "ground-truth"))
    basis = KFACKind().basis(Estimate(moments.rest, pack(moments.layers)), memory)
    x, c = torch.randn(len(F), dtype=torch.float64), torch.randn(6, dtype=torch.float64)
    torch.testing.assert_close(basis.dense(), rows @ F, **EXACT)
    torch.testing.assert_close(basis.rmatvec(x), rows @ F @ x, **EXACT)
    torch.testing.assert_close(basis.matvec(c), F @ rows.T @ c, **EXACT)
    metric, damped = kfac(model, batch)
    expected = rows @ F @ torch.linalg.solve(damped, F @ rows.T)
    torch.testing.assert_close(metric.inverse_gram(basis), expected, **EXACT)
    weights = torch.rand(len(F), dtype=torch.float64)
    torch.testing.assert_close(basis.gram(weights), (rows @ F * weights) @ F @ rows.T, **EXACT)


@pytest.mark.parametrize("build", METRICS)
def test_a_layer_without_signal_is_damped_alone(build):
    """Nothing comes back to it: the metric there is the damping."""
    model, (x, y) = world("linear")
    model[2].weight.data.zero_()
    metric, F = METRICS[build](model, (x, y))
    v = torch.randn(len(F), dtype=torch.float64)
    assert metric.solve(v).isfinite().all()


def test_a_metric_that_is_not_positive_is_refused():
    layout = ParamLayout.of(nn.Linear(2, 1))
    model, batch = world("linear")
    moments = layer_moments(GradientSource(model), [batch]).layers["2.weight", "2.bias"]
    with pytest.raises(ValueError, match="Raise damping"):
        Kronecker(
            layout, {("weight", "bias"): moments}, torch.zeros(layout.size, dtype=torch.float64), damping=float("nan")
        )
