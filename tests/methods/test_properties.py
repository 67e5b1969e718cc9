"""What is true of any gradients and any Fisher, on the mathematics alone."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from methods.worlds import FISHER, PROJECTED, make, single_head
from oracle import fisher_norm

seeds = st.integers(0, 10_000)


def method_of(name: str, seed: int, **settings):
    """A method with a random memory and random Fishers, its parameters and a gradient."""
    torch.manual_seed(seed)
    world = single_head()
    if name.startswith("FOPNG"):
        settings.setdefault("projection", "orthogonal")
    optimizer = make(name, world, **settings)
    optimizer.begin_task(0)
    optimizer.end_task(world.loaders[0])
    method = optimizer.method
    p = method.layout.size
    method.vectors |= {key: torch.rand(p, dtype=torch.float64) + 0.1 for key in ("fisher_old", "fisher_new")}
    method.forget_derived()
    return method, torch.randn(p, dtype=torch.float64)


def step(method, g: torch.Tensor, lr: float = 0.1) -> torch.Tensor:
    return method.update(g, lr=lr, theta=None)


@given(seeds)
@pytest.mark.parametrize("name", ["OGD", "NaturalOGD", "FOPNG", "FOPNGPreFisher"])
def test_the_orthogonal_form_leaves_nothing_of_the_basis_in_the_step(name, seed):
    method, g = method_of(name, seed, gram_damping=1e-12)
    B, v = method.basis().dense().T, step(method, g)
    assert (B.T @ v).norm() <= 1e-7 * B.norm() * v.norm()
    assert (B.T @ g).norm() > 1e-4 * B.norm() * g.norm()


@given(seeds, st.floats(1e-6, 10.0))
@pytest.mark.parametrize("projection", ["printed", "orthogonal"])
@pytest.mark.parametrize("name", FISHER)
def test_the_step_of_a_trust_region_has_fisher_length_lr(name, projection, seed, lr):
    settings = {"projection": projection} if name.startswith("FOPNG") else {}
    method, g = method_of(name, seed, **settings)
    F = torch.diag(method.vectors["fisher_new"] + 1e-3)
    torch.testing.assert_close(float(fisher_norm(step(method, g, lr), F)), lr, rtol=1e-9, atol=0)


@given(seeds, st.floats(1e-6, 1e6))
@pytest.mark.parametrize("name", FISHER)
def test_scaling_the_loss_does_not_change_the_step(name, seed, scale):
    method, g = method_of(name, seed)
    torch.testing.assert_close(step(method, scale * g), step(method, g), rtol=1e-9, atol=1e-12)


@given(seeds)
@pytest.mark.parametrize("name", PROJECTED)
def test_the_order_of_the_stored_gradients_does_not_matter(name, seed):
    method, g = method_of(name, seed)
    before = step(method, g)
    held = method.memory.state_dict()
    order = torch.randperm(method.memory.count)
    method.memory.load_state_dict(
        {key: t if key in ("shares", "dropped") or key.endswith('"weight"]') else t[order] for key, t in held.items()}
    )
    method.forget_derived()
    torch.testing.assert_close(step(method, g), before, rtol=1e-7, atol=1e-10)


@given(seeds)
@pytest.mark.parametrize("name", PROJECTED)
def test_stored_gradients_may_be_scaled_in_the_orthogonal_form(name, seed):
    """Only their span matters, once the damping is negligible."""
    method, g = method_of(name, seed, gram_damping=1e-12)
    before = step(method, g)
    held = method.memory.state_dict()
    method.memory.load_state_dict({key: 3 * t if '"g"' in key or '"d"' in key else t for key, t in held.items()})
    method.forget_derived()
    torch.testing.assert_close(step(method, g), before, rtol=1e-6, atol=1e-9)
