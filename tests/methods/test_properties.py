"""What is true of any gradients and any Fisher, on the mathematics alone."""

from collections.abc import Callable
from dataclasses import fields, replace
from functools import reduce

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import fopng
from flat import flat, named
from fopng.curvature.fishers import DiagonalFisher
from fopng.gradients.layers import DenseGradients, LayerGradients, LinearGradients
from fopng.memory.gradients import GradientBlock
from methods.worlds import FISHER, PROJECTED, make, single_head, step_of
from oracle import fisher_norm

seeds = st.integers(0, 10_000)


def optimizer_of(name: str, seed: int, **settings) -> tuple[fopng.ContinualOptimizer, torch.Tensor]:
    """An optimizer with a random memory and random Fishers, and a gradient."""
    torch.manual_seed(seed)
    world = single_head()
    if name.startswith("FOPNG"):
        settings.setdefault("projection", "orthogonal")
    optimizer = make(name, world, **settings)
    optimizer.begin_task(0)
    optimizer.end_task(world.loaders[0])
    shapes, state = optimizer.layout.shapes, optimizer.pipeline.state
    p = optimizer.layout.size
    fishers = {key: torch.rand(p, dtype=torch.float64) + 0.1 for key in ("fisher_old", "fisher_new")}
    made = {own.name: DiagonalFisher(named(fishers[own.name], shapes)) for own in fields(state) if own.name in fishers}
    optimizer.pipeline.state = replace(state, **made)
    return optimizer, torch.randn(p, dtype=torch.float64)


def step(optimizer: fopng.ContinualOptimizer, g: torch.Tensor, lr: float = 0.1) -> torch.Tensor:
    return step_of(optimizer, g, lr)


def change_stored(optimizer: fopng.ContinualOptimizer, change: Callable[[LayerGradients], LayerGradients]) -> None:
    """Put others in the place of each layer's gradients, of the one task that there is."""
    state, held = optimizer.pipeline.state, []
    for names, pieces in state.memory.blocks():
        own = reduce(lambda first, more: first.append(more), (gradients for _, gradients, _ in pieces))
        held.append(GradientBlock(names, 0, change(own), pieces[0][2]))
    optimizer.pipeline.state = replace(state, gradients=replace(state.memory, held=tuple(held)))


@given(seeds)
@pytest.mark.parametrize("name", ["OGD", "NaturalOGD", "FOPNG", "FOPNGPreFisher"])
def test_the_orthogonal_form_leaves_nothing_of_the_basis_in_the_step(name, seed):
    optimizer, g = optimizer_of(name, seed, gram_damping=1e-12)
    shapes = optimizer.layout.shapes
    B = flat(optimizer.method.basis(optimizer.pipeline.state, shapes).rows(), shapes).T
    v = step(optimizer, g)
    assert (B.T @ v).norm() <= 1e-7 * B.norm() * v.norm()
    assert (B.T @ g).norm() > 1e-4 * B.norm() * g.norm()


@given(seeds, st.floats(1e-6, 10.0))
@pytest.mark.parametrize("projection", ["printed", "orthogonal"])
@pytest.mark.parametrize("name", FISHER)
def test_the_step_of_a_trust_region_has_fisher_length_lr(name, projection, seed, lr):
    settings = {"projection": projection} if name.startswith("FOPNG") else {}
    optimizer, g = optimizer_of(name, seed, **settings)
    F = torch.diag(flat(optimizer.pipeline.state.fisher_new.values, optimizer.layout.shapes) + 1e-3)
    torch.testing.assert_close(float(fisher_norm(step(optimizer, g, lr), F)), lr, rtol=1e-9, atol=0)


@given(seeds, st.floats(1e-6, 1e6))
@pytest.mark.parametrize("name", FISHER)
def test_scaling_the_loss_does_not_change_the_step(name, seed, scale):
    optimizer, g = optimizer_of(name, seed)
    torch.testing.assert_close(step(optimizer, scale * g), step(optimizer, g), rtol=1e-9, atol=1e-12)


@given(seeds)
@pytest.mark.parametrize("name", PROJECTED)
def test_the_order_of_the_stored_gradients_does_not_matter(name, seed):
    optimizer, g = optimizer_of(name, seed)
    before = step(optimizer, g)
    order = torch.randperm(optimizer.pipeline.state.memory.count)
    change_stored(optimizer, lambda own: own.select(order))
    torch.testing.assert_close(step(optimizer, g), before, rtol=1e-7, atol=1e-10)


def tripled(own: LayerGradients) -> LayerGradients:
    if isinstance(own, LinearGradients):
        return replace(own, d=3 * own.d)
    assert isinstance(own, DenseGradients)
    return replace(own, parts=tuple(3 * part for part in own.parts))


@given(seeds)
@pytest.mark.parametrize("name", PROJECTED)
def test_stored_gradients_may_be_scaled_in_the_orthogonal_form(name, seed):
    """Only their span matters, once the damping is negligible."""
    optimizer, g = optimizer_of(name, seed, gram_damping=1e-12)
    before = step(optimizer, g)
    change_stored(optimizer, tripled)
    torch.testing.assert_close(step(optimizer, g), before, rtol=1e-6, atol=1e-9)
