"""Second moments of layers, against one sample at a time."""

import copy

import pytest
import torch
from torch import nn

import oracle
import zoo
from flat import named
from fopng.core.batch import NotFinite
from fopng.core.likelihood import Categorical, signals
from fopng.curvature.estimate import input_moments, layer_moments
from fopng.curvature.sampling import LoaderStream
from fopng.gradients.per_sample import PerSampleGradients
from streams import BatchStream

EXACT = {"rtol": 1e-10, "atol": 1e-12}


def expected_moments(model, x, backs):
    """`A` and `G` by the names of a layer's parameters, one sample and one signal at a time."""
    names = {m: tuple(f"{path}.{n}" for n, _ in m.named_parameters()) for path, m in model.named_modules()}
    return {names[layer]: pair for layer, pair in oracle.moments(model, (x, None), backs, ask)[0].items()}


def ask(model, batch):
    return model(batch[0]), None


def normed():
    return nn.Sequential(
        nn.Conv2d(2, 4, 3, padding=1),
        nn.GroupNorm(2, 4),
        nn.Conv2d(4, 4, 2, stride=2, groups=2),
        nn.Conv2d(4, 3, 2, stride=(1, 2), bias=False),
        nn.Tanh(),
        nn.Flatten(),
        nn.Linear(6, 3),
    ).double()


def mlp():
    return nn.Sequential(nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 3, bias=False)).double()


def sequence():
    return nn.Sequential(nn.Linear(5, 4), nn.Tanh(), nn.Flatten(), nn.Linear(12, 3)).double()


MODELS = {"mlp": (mlp, (5,)), "convolutions": (normed, (2, 6, 6)), "sequence": (sequence, (3, 5))}


GROUPED = {"convolutions": [("2.weight", "2.bias")]}


def world(name, n=4):
    make, shape = MODELS[name]
    torch.manual_seed(0)
    return make(), (torch.randn(n, *shape, dtype=torch.float64), torch.arange(n) % 3)


@pytest.mark.parametrize("kind", ["normal", "observed", "sampled", "expected"])
@pytest.mark.parametrize("name", MODELS)
def test_moments_are_those_of_each_sample_alone(name, kind):
    model, (x, y) = world(name)
    backs = signals(Categorical(), kind, model(x).detach(), y, axes=1, generator=torch.Generator().manual_seed(3))
    expected = expected_moments(copy.deepcopy(model), x, list(backs))
    stream = LoaderStream([(x, y)], torch.Generator().manual_seed(3))
    found = layer_moments(PerSampleGradients(model), stream, signals=kind)
    assert set(found.layers) == {*expected, *GROUPED.get(name, [])}
    for names, (A, G) in expected.items():
        own = found.layers[names]
        torch.testing.assert_close(own.inputs, A, **EXACT)
        torch.testing.assert_close(own.signals, G, **EXACT)


def test_everything_else_has_its_squares():
    model, (x, y) = world("convolutions")
    source = PerSampleGradients(model)
    squares = named(oracle.sample_gradients(model, (x, y), len(x)).square().mean(0), source.layout.shapes)
    found = layer_moments(source, LoaderStream([(x, y)]), signals="observed").rest
    assert found.names == ("1.weight", "1.bias")
    for name, value in found.parts.items():
        torch.testing.assert_close(value, squares[name], **EXACT)


def test_one_sample_and_one_position_make_the_fisher():
    model, (x, y) = world("mlp", n=1)
    found = layer_moments(PerSampleGradients(model), LoaderStream([(x, y)]), signals="observed").layers["2.weight",]
    g = oracle.sample_gradients(model, (x, y), 1)[0, -12:]
    torch.testing.assert_close(torch.kron(found.signals, found.inputs), torch.outer(g, g), **EXACT)


@pytest.mark.parametrize("name", zoo.MODELS)
def test_every_model_has_moments(name):
    """Tied layers, layers used twice, samples that share an axis: nothing is counted twice or left out."""
    case = zoo.MODELS[name]()
    source = PerSampleGradients(case.model, predict=case.ask)
    found = layer_moments(source, LoaderStream([case.batch]), signals="observed")
    inside = {name for names in found.layers for name in names}
    alone = oracle.sample_gradients(case.model, copy.deepcopy(case.batch), zoo.N, ask=case.ask)
    squares = named(alone.square().mean(0), source.layout.shapes)
    assert set(found.rest.names) == set(source.layout.names) - inside
    for name, value in found.rest.parts.items():
        torch.testing.assert_close(value, squares[name], **EXACT)
    inputs = input_moments(source, LoaderStream([case.batch]))
    for names in inputs.keys() & found.layers.keys() if name not in ("tied", "tied_linears") else ():
        # positions to which nothing comes back are inputs, but no part of the Fisher
        more = inputs[names].moment - found.layers[names].inputs
        assert torch.linalg.eigvalsh(more).min() > -1e-9


@pytest.mark.parametrize("name", MODELS)
def test_replicas_have_the_moments_they_have_alone(name):
    model, (x, y) = world(name, n=6)
    source = PerSampleGradients(model)
    theta = oracle.flat_parameters(model) + 0.1 * torch.randn(3, source.layout.size, dtype=torch.float64)
    seeds = range(3)
    batches = [(x[p].expand(3, *x[p].shape), y[p].expand(3, -1)) for p in (slice(0, 4), slice(4, 6))]
    generators = [torch.Generator().manual_seed(s) for s in seeds]
    stream = BatchStream(batches, named(theta, source.layout.shapes), generators)
    together, alike = layer_moments(source, stream, signals="normal"), input_moments(source, stream)
    for r in seeds:
        alone = oracle.with_parameters(copy.deepcopy(model), theta[r])
        stream = LoaderStream([(x, y)], torch.Generator().manual_seed(r))
        expected = layer_moments(PerSampleGradients(alone), stream, signals="normal")
        assert together.rest.names == expected.rest.names
        for name, value in expected.rest.parts.items():
            torch.testing.assert_close(together.rest[name][r], value, **EXACT)
        for names, own in expected.layers.items():
            torch.testing.assert_close(together.layers[names].inputs[r], own.inputs, **EXACT)
            torch.testing.assert_close(together.layers[names].signals[r], own.signals, **EXACT)
            torch.testing.assert_close(alike[names].moment[r], own.inputs, **EXACT)


def test_the_noise_has_variance_one():
    outputs = torch.zeros(20_000, 3, dtype=torch.float64)
    [noise] = signals(Categorical(), "normal", outputs, None, axes=1, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(noise.T @ noise / len(noise), torch.eye(3, dtype=torch.float64), rtol=0, atol=0.03)
    torch.testing.assert_close(noise.mean(0), torch.zeros(3, dtype=torch.float64), rtol=0, atol=0.03)


def test_a_head_that_is_not_asked_has_no_moments():
    case = zoo.multi_head()
    found = layer_moments(PerSampleGradients(case.model, predict=case.ask), LoaderStream([case.batch]))
    reached = {name for names in found.layers for name in names}
    idle = [name for name, p in case.model.named_parameters() if name not in reached]
    assert reached
    assert idle


def test_a_number_of_samples_is_drawn():
    model, (x, y) = world("mlp", n=6)
    source = PerSampleGradients(model)
    stream = LoaderStream([(x[:3], y[:3]), (x[3:], y[3:])], torch.Generator().manual_seed(1))
    found = input_moments(source, stream, samples=2)
    rows = torch.cat([x, torch.ones(6, 1, dtype=torch.float64)], 1)
    pairs = [(rows[[i, j]].T @ rows[[i, j]]) / 2 for i in range(6) for j in range(i)]
    assert sum(torch.allclose(found["0.weight", "0.bias"].moment, pair) for pair in pairs) == 1


def test_bad_data_are_refused():
    model, (x, y) = world("mlp")
    source = PerSampleGradients(model)
    with pytest.raises(ValueError, match="at least one sample"):
        layer_moments(source, LoaderStream([]))
    with pytest.raises(ValueError, match="at least one sample"):
        input_moments(source, LoaderStream([]))
    layer_moments(source, LoaderStream([(x, y)]))
    for take in (layer_moments, input_moments):
        with pytest.raises(NotFinite, match=r"0\.weight"):
            take(source, LoaderStream([(torch.full_like(x, torch.nan), y)]))
