"""Copies of an optimizer, and parameters that get more rows, without any library."""

import copy
import pickle

import pytest
import torch
from torch import nn

import fopng
from flat import flat as flat_vector
from flat import named, size
from fopng.gradients.per_sample import PerSampleGradients
from fopng.memory.gradients import GradientMemory
from fopng.optim import METHOD_NAMES
from fopng.optim.resize import resized
from methods.worlds import kept

METHODS = [getattr(fopng, name) for name in METHOD_NAMES]


def made(method, classes=2, **settings):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, classes)).double()
    return model, method(model, lr=1e-2, **settings)


def data(task):
    x = torch.randn(20, 3, generator=torch.Generator().manual_seed(task)).double()
    return [(x, (x[:, task] > 0).long())]


def learn(model, optimizer, task):
    optimizer.begin_task(task)
    optimizer.refresh(data(task))
    steps(model, optimizer, task)
    optimizer.end_task(data(task))


def steps(model, optimizer, task, count=3):
    for _ in range(count):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(data(task)[0][0]), data(task)[0][1]).backward()
        optimizer.step()


def flat(model):
    return torch.cat([p.detach().flatten() for p in model.parameters()])


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("way", [copy.deepcopy, lambda pair: pickle.loads(pickle.dumps(pair))], ids=["copy", "pickle"])
def test_a_copy_knows_all_and_goes_its_own_way(method, way):
    model, optimizer = made(method, momentum=0.5) if method is not fopng.Adam else made(method)
    learn(model, optimizer, 0)
    optimizer.begin_task(1)
    optimizer.refresh(data(1))
    steps(model, optimizer, 1, 1)
    model_copy, optimizer_copy = way((model, optimizer))
    assert optimizer_copy.model is model_copy
    before = flat(model_copy)
    steps(model, optimizer, 1)
    assert torch.equal(flat(model_copy), before)
    steps(model_copy, optimizer_copy, 1)
    torch.testing.assert_close(flat(model_copy), flat(model), rtol=0, atol=0)


def test_a_copy_in_the_first_task_has_its_first_optimizer():
    model, optimizer = made(fopng.FOPNG)
    optimizer.begin_task(0)
    model_copy, optimizer_copy = copy.deepcopy((model, optimizer))
    for pair in ((model, optimizer), (model_copy, optimizer_copy)):
        steps(*pair, 0)
    assert torch.equal(flat(model), flat(model_copy))


def replace_last(model, rows):
    """Give the last layer more rows, as dynamic classifiers do."""
    old = model[2]
    new = nn.Linear(old.in_features, rows).double()
    with torch.no_grad():
        new.weight[: old.out_features], new.bias[: old.out_features] = old.weight, old.bias
    model[2] = new


@pytest.mark.parametrize("method", [m for m in METHODS if m not in (fopng.NCL, fopng.KroneckerFOPNG)])
def test_the_old_rows_keep_what_is_known_and_the_new_ones_learn(method):
    model, optimizer = made(method)
    learn(model, optimizer, 0)
    known = kept(optimizer)
    replace_last(model, 5)
    with pytest.raises(ValueError, match=r"'2.weight' of shape \(5, 4\) instead of \(2, 4\)\). Call adopt_parameters"):
        optimizer.begin_task(1)
    optimizer.adopt_parameters()
    for path, grown in kept(optimizer).items():
        if path.endswith("/parts/2.weight"):
            assert torch.equal(grown[:2], known[path])
            assert len(grown) == 5
            assert not grown[2:].any()
        if path.endswith("/parts/0.weight"):
            assert torch.equal(grown, known[path])
    before = flat(model)
    learn(model, optimizer, 1)
    assert (flat(model) != before).any()
    assert optimizer.layout.shapes["2.bias"] == (5,)


def test_growing_before_the_first_task_reaches_the_optimizer_of_that_task():
    model, optimizer = made(fopng.FOPNG, first_task=None)
    replace_last(model, 5)
    optimizer.adopt_parameters()
    before = model[2].weight.clone()
    optimizer.begin_task(0)
    steps(model, optimizer, 0)
    assert (model[2].weight != before).any()


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("weighted", [True, False])
def test_a_grown_memory_is_the_dense_one_with_zeros(bias, weighted):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv1d(2, 2, 2), nn.Flatten(), nn.Linear(6, 3, bias=bias)).double()
    source = PerSampleGradients(model)
    shapes = source.layout.shapes
    batch = (torch.randn(5, 2, 4).double(), torch.tensor([0, 1, 2, 0, 1]))
    weight = named(torch.rand(size(shapes)).double(), shapes) if weighted else None
    memory = GradientMemory().appended(*source.gradients(batch, "ground-truth"), weight=weight)
    grown_shapes = {name: torch.Size((s[0] + 2, *s[1:])) for name, s in shapes.items()}
    grown = resized(memory, grown_shapes)
    eye = torch.eye(5, dtype=torch.float64)
    for row in eye:
        sums = memory.matvec(row)
        expected = []
        for name, shape in shapes.items():
            larger = torch.zeros(grown_shapes[name], dtype=torch.float64)
            larger[: shape[0]] = sums[name]
            expected.append(larger.flatten())
        for found in (grown.matvec(row), resized(sums, grown_shapes)):
            torch.testing.assert_close(flat_vector(found, grown_shapes), torch.cat(expected))


def test_what_cannot_be_followed_is_refused():
    model, optimizer = made(fopng.FOPNG)
    learn(model, optimizer, 0)
    model[2] = nn.Linear(4, 1).double()
    with pytest.raises(ValueError, match=r"Expected '2.weight' of shape \(2, 4\), or with more rows, got \(1, 4\)"):
        optimizer.adopt_parameters()
    model, optimizer = made(fopng.FOPNG)
    optimizer.begin_task(0)
    replace_last(model, 3)
    with pytest.raises(RuntimeError, match="Task 0 has not been ended"):
        optimizer.adopt_parameters()
    model, optimizer = made(fopng.FOPNG, metric="kfac")
    learn(model, optimizer, 0)
    replace_last(model, 3)
    with pytest.raises(ValueError, match=r"got more rows in \['2.weight', '2.bias'\]"):
        optimizer.adopt_parameters()


def test_parameters_replaced_by_some_of_the_same_shape_are_followed():
    model, optimizer = made(fopng.EWC)
    learn(model, optimizer, 0)
    replace_last(model, 2)
    with pytest.raises(ValueError, match="Call adopt_parameters"):
        optimizer.begin_task(1)
    optimizer.adopt_parameters()
    before = model[2].weight.clone()
    learn(model, optimizer, 1)
    assert (model[2].weight != before).all()
