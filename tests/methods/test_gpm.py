"""What gradient projection memory promises, on whole models."""

import pytest
import torch
from torch import nn

from methods.worlds import World, data, flat, make, run, single_head


def few(dtype=torch.float64) -> World:
    """Two tasks of two samples, fewer than any layer is wide."""
    model = nn.Sequential(nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 3)).to(dtype)
    return World(model, [[(x[:2], y[:2]) for x, y in loader[:1]] for loader in data(2, dtype=dtype)])


@pytest.mark.parametrize("name", ["GPM", "SGP"])
def test_answers_to_what_is_remembered_do_not_change(name):
    """With everything remembered the second task moves the model, but not a bit of its answers to the first."""
    world = few()
    settings = {"importance_scale": 1e12} if name == "SGP" else {}
    optimizer = make(name, world, 0.5, threshold=1.0, input_samples=None, **settings)
    run(optimizer, world, range(1))
    x = world.loaders[0][0][0]
    before, start = world.model(x).detach(), flat(world.model)
    run(optimizer, world, range(1, 2), epochs=20)
    torch.testing.assert_close(world.model(x).detach(), before, rtol=1e-9, atol=1e-9)
    assert (flat(world.model) - start).norm() > 0.1


@pytest.mark.parametrize("name", ["GPM", "SGP"])
@pytest.mark.parametrize("frozen", [("0.bias", "2.bias"), ("2.weight",), ("0.weight", "2.bias")], ids=" ".join)
def test_they_do_not_change_with_a_part_of_a_layer_frozen_later(name, frozen):
    world = few()
    settings = {"importance_scale": 1e12} if name == "SGP" else {}
    optimizer = make(name, world, 0.5, threshold=1.0, input_samples=None, **settings)
    run(optimizer, world, range(1))
    x = world.loaders[0][0][0]
    before, start = world.model(x).detach(), flat(world.model)
    for key, parameter in world.model.named_parameters():
        parameter.requires_grad_(key not in frozen)
    run(optimizer, world, range(1, 2), epochs=20)
    torch.testing.assert_close(world.model(x).detach(), before, rtol=1e-9, atol=1e-9)
    assert (flat(world.model) - start).norm() > 0.01


def test_scaled_projection_with_a_large_scale_is_gpm():
    world = single_head()
    other = world.twin()
    found = run(make("SGP", world, importance_scale=1e12, threshold=0.8), world)
    torch.testing.assert_close(found, run(make("GPM", other, threshold=0.8), other), rtol=1e-8, atol=1e-10)


def test_what_is_kept_does_not_grow_with_the_tasks():
    """At most the width of each layer squared, and as much for its importance."""
    world = single_head()
    optimizer = make("GPM", world, threshold=1.0)
    sizes = []
    for task in range(3):
        run(optimizer, world, range(task, task + 1))
        sizes.append(optimizer.diagnose().bytes)
    assert sizes == [8 * (6 * 7 + 5 * 6)] * 3


def test_what_has_no_inputs_to_project_on_is_frozen_once_a_task_has_used_it():
    model = nn.Sequential(nn.Linear(5, 4), nn.LayerNorm(4), nn.Linear(4, 3)).double()
    world = World(model, data())
    optimizer = make("GPM", world, threshold=0.5)
    start = model[1].weight.clone()
    run(optimizer, world, range(1))
    norm, linear = model[1].weight.clone(), model[0].weight.clone()
    assert not torch.equal(norm, start)
    run(optimizer, world, range(1, 2))
    assert torch.equal(model[1].weight, norm)
    assert not torch.equal(model[0].weight, linear)


def test_rates_of_their_own_do_not_bend_the_projection():
    """A bias that learns faster than its weight still leaves the old answers alone."""
    world = few()
    groups = [{"params": [world.model[0].bias], "lr": 5.0}]
    optimizer = make("GPM", world, 0.5, threshold=1.0, input_samples=None, groups=groups)
    run(optimizer, world, range(1))
    x = world.loaders[0][0][0]
    before = world.model(x).detach()
    run(optimizer, world, range(1, 2), epochs=5)
    torch.testing.assert_close(world.model(x).detach(), before, rtol=1e-9, atol=1e-9)
