"""What is known of natural continual learning."""

from dataclasses import replace

import torch
from torch import Tensor

import fopng
from flat import flat as flat_vector
from flat import named
from fopng.curvature.moments import Moments
from fopng.optim.kronecker_base import used_parameters
from methods.worlds import flat, make, multi_head, run, single_head


def remembering(**settings):
    """One task done; the optimizer, and where the parameters are."""
    world = single_head()
    optimizer = make("NCL", world, **settings)
    run(optimizer, world, range(1))
    return optimizer, flat(world.model)


def update(optimizer: fopng.NCL, g: Tensor, *, lr: float, theta: Tensor) -> Tensor:
    """The step that is subtracted."""
    g, theta = (named(x, optimizer.layout.shapes) for x in (g, theta))
    return flat_vector(optimizer.pipeline.step(g, lr=lr, theta=theta, rehearser=None).v, optimizer.layout.shapes)


def test_without_prior_precision_it_is_sgd():
    """Before any task is done there is neither a precision nor an old value."""
    world = single_head()
    twin = world.twin()
    found, expected = (
        run(make("NCL", world), world, range(1), epochs=3),
        run(make("SGD", twin), twin, range(1), epochs=3),
    )
    assert torch.equal(found, expected)


def test_with_a_precision_of_zero_it_is_sgd():
    optimizer, theta = remembering()
    method, pipeline, here = optimizer.method, optimizer.pipeline, named(theta, optimizer.layout.shapes)
    state = method.remembered(replace(pipeline.state, moments=None, tasks=0), Moments({}, here.zeros()))
    pipeline.state = replace(state, used=used_parameters(state.moments, here))
    g = torch.randn_like(theta)
    torch.testing.assert_close(update(optimizer, g, lr=0.1, theta=theta + 1), 0.1 * g)


def test_it_rests_where_the_penalised_loss_does():
    """`g + (F_old + I / s) (theta - theta*) = 0`: the Laplace posterior's mode, whatever the preconditioner."""
    optimizer, theta = remembering(strength=50.0)
    state, shapes = optimizer.pipeline.state, optimizer.layout.shapes
    fisher = optimizer.method.old_fisher(state.moments, shapes)
    here = theta + torch.randn_like(theta)
    moved = here - flat_vector(state.anchor, shapes)
    g = -(flat_vector(fisher(named(moved, shapes)), shapes) + moved / 50)
    assert update(optimizer, g, lr=1.0, theta=here).abs().max() < 1e-10
    assert update(optimizer, 1.01 * g, lr=1.0, theta=here).abs().max() > 1e-4


def test_a_head_without_an_old_value_is_not_pulled():
    world = multi_head()
    optimizer = make("NCL", world, strength=1e-3)
    run(optimizer, world, range(1))
    world.model.trunk.requires_grad_(False)
    before = world.model.heads[1].weight.detach().clone()
    world.model.heads[1].weight.data += 1
    twin = world.twin()
    run(optimizer, world, range(1, 2))
    run(make("SGD", twin), twin, range(1, 2))
    torch.testing.assert_close(world.model.heads[1].weight, twin.model.heads[1].weight)
    assert (world.model.heads[1].weight - before).abs().min() > 0.1
