"""What `diagnose` tells of the last step, and that asking changes nothing."""

import math

import pytest
import torch

from flat import flat as flat_vector
from fopng.core.vector import Vector
from methods.worlds import (
    FISHER,
    INPUTS,
    KRONECKER,
    METHODS,
    PROJECTED,
    flat,
    kept,
    live,
    make,
    run,
    single_head,
    tensors,
)

every_method = pytest.mark.parametrize("name", METHODS)
FIGURES = ("removed_fraction", "angle", "fisher_norm", "condition")


@every_method
def test_nothing_is_known_before_a_step(name):
    world = single_head()
    optimizer = make(name, world)
    told = optimizer.diagnose()
    assert all(getattr(told, figure).isnan() for figure in FIGURES)
    assert (told.directions, told.bytes) == (0, 0)
    run(optimizer, world, range(2))
    assert all(getattr(optimizer.diagnose(), figure).isnan() for figure in FIGURES)


@every_method
def test_the_figures_are_those_of_the_step_that_was_taken(name):
    """From the parameters before and after, and the dense matrices."""
    world = single_head()
    optimizer = make(name, world, momentum=0.5)
    run(optimizer, world, range(2))
    optimizer.begin_task(2)
    optimizer.refresh(world.loaders[2])
    pipeline, shapes = optimizer.pipeline, optimizer.layout.shapes
    momentum, anchor = pipeline.running.momentum, getattr(pipeline.state, "anchor", None)
    total = torch.zeros_like(flat(world.model)) if momentum is None else flat_vector(momentum, shapes)
    for batch in world.loaders[2]:
        optimizer.zero_grad()
        world.loss(batch).backward()
        raw, before = torch.cat([p.grad.flatten() for p in world.model.parameters()]), flat(world.model)
        total = 0.5 * total + raw
        pull = torch.zeros_like(before) if anchor is None else before - flat_vector(anchor, shapes)
        optimizer.step()
        v, told = before - flat(world.model), optimizer.diagnose()
        cosine = raw @ v / raw.norm() / v.norm()
        torch.testing.assert_close(told.angle, torch.rad2deg(cosine.arccos()))
        if name in FISHER:
            torch.testing.assert_close(told.fisher_norm, torch.tensor(0.05, dtype=torch.float64))
        else:
            torch.testing.assert_close(told.fisher_norm, v.norm())
        if name not in PROJECTED:
            left = v / 0.05 - pull / 10_000 if name == "NCL" else v / 0.05
            removed = total - left if name in (*KRONECKER, *INPUTS) else torch.zeros_like(total)
            torch.testing.assert_close(told.removed_fraction, removed.norm() / total.norm())
            assert told.condition.isnan()
            continue
        projector = pipeline.prepared(Vector(dict(world.model.named_parameters()))).projector
        B = flat_vector(projector.basis.rows(), shapes).T
        assert told.directions == B.shape[1] == 8
        euclidean = name in ("OGD", "ONG")
        metric = torch.ones_like(raw) if euclidean else flat_vector(pipeline.state.fisher_new.values, shapes) + 1e-3
        A = B.T @ (B / metric[:, None])
        printed = name.startswith("FOPNG")
        A += torch.eye(8, dtype=A.dtype) * (1e-3 if printed else 1e-6 * A.diagonal().mean())
        removed = B @ torch.linalg.solve(A, B.T @ (total if printed else total / metric))
        torch.testing.assert_close(told.removed_fraction, removed.norm() / total.norm(), rtol=1e-6, atol=0)
        torch.testing.assert_close(told.condition, torch.linalg.cond(A), rtol=1e-6, atol=0)


@every_method
def test_a_step_of_before_is_not_that_of_a_loaded_state(name):
    world = single_head()
    optimizer = make(name, world, first_task="own")
    state = optimizer.state_dict()
    next(live(optimizer, world))
    assert not optimizer.diagnose().angle.isnan()
    optimizer.load_state_dict(state)
    assert optimizer.diagnose().angle.isnan()


@every_method
def test_bytes_are_those_of_the_state(name):
    world = single_head()
    optimizer = make(name, world, momentum=0.5)
    for _ in live(optimizer, world):
        assert optimizer.diagnose().bytes == sum(t.numel() * t.element_size() for t in kept(optimizer).values())


@every_method
def test_asking_changes_no_number(name):
    worlds = [single_head()]
    worlds.append(worlds[0].twin())
    asked, other = (make(name, world, momentum=0.5) for world in worlds)
    for _, _ in zip(live(asked, worlds[0]), live(other, worlds[1]), strict=True):
        first, second = asked.diagnose(), asked.diagnose()
        assert all(getattr(first, f).equal(getattr(second, f)) or getattr(first, f).isnan() for f in FIGURES)
        assert torch.equal(flat(worlds[0].model), flat(worlds[1].model))
    found, expected = tensors(asked.state_dict()), tensors(other.state_dict())
    assert all(torch.equal(found[key], expected[key]) for key in expected)


@pytest.mark.parametrize("name", PROJECTED)
def test_a_zero_gradient_takes_no_step_and_has_no_angle(name):
    world = single_head()
    optimizer = make(name, world, first_task="own")
    run(optimizer, world, range(1))
    optimizer.begin_task(1)
    optimizer.refresh(world.loaders[1])
    for parameter in world.model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    before = flat(world.model)
    optimizer.step()
    told = optimizer.diagnose()
    assert torch.equal(flat(world.model), before)
    assert told.fisher_norm == 0
    assert math.isnan(told.angle)


@every_method
def test_a_gradient_that_was_written_over_is_told(name):
    world = single_head()
    optimizer = make(name, world)
    run(optimizer, world, range(2))
    optimizer.begin_task(2)
    optimizer.refresh(world.loaders[2])
    world.loss(next(iter(world.loaders[2]))).backward()
    optimizer.step()
    optimizer.diagnose()
    optimizer.zero_grad(set_to_none=False)
    with pytest.raises(RuntimeError, match="written over. Ask right after step"):
        optimizer.diagnose()
