"""What is known of natural continual learning."""

import torch

from fopng.curvature.kronecker import KroneckerFisher
from fopng.curvature.moments import Moments
from methods.worlds import flat, make, multi_head, run, single_head


def remembering(**settings):
    """One task done; the method, and where the parameters are."""
    world = single_head()
    optimizer = make("NCL", world, **settings)
    run(optimizer, world, range(1))
    return optimizer.method, flat(world.model)


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
    method, theta = remembering()
    method.matrices, method.vectors = {}, {"anchor": theta}
    method.remember(Moments({}, torch.zeros_like(theta)))
    method.forget_derived()
    g = torch.randn_like(theta)
    torch.testing.assert_close(method.update(g, lr=0.1, theta=theta + 1), 0.1 * g)


def test_it_rests_where_the_penalised_loss_does():
    """`g + (F_old + I / s) (theta - theta*) = 0`: the Laplace posterior's mode, whatever the preconditioner."""
    method, theta = remembering(strength=50.0)
    fisher: KroneckerFisher = method.old_fisher()
    here = theta + torch.randn_like(theta)
    moved = here - method.vectors["anchor"]
    g = -(fisher(moved) + moved / 50)
    assert method.update(g, lr=1.0, theta=here).abs().max() < 1e-10
    assert method.update(1.01 * g, lr=1.0, theta=here).abs().max() > 1e-4


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
