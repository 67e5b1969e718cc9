"""Synaptic Intelligence and Memory Aware Synapses, from their papers' formulas, parameter by parameter after every step."""

from itertools import combinations

import pytest
import torch
from torch import Tensor, nn

import fopng
import zoo
from flat import flat as flat_vector
from methods.worlds import World, flat, make, multi_head, run, single_head

WORLDS = {"single-head": single_head, "multi-head": multi_head}


def gradient(loss: Tensor, model: nn.Module) -> Tensor:
    """Flat; zero where nothing came back."""
    found = torch.autograd.grad(loss, list(model.parameters()), allow_unused=True)
    return torch.cat(
        [(torch.zeros_like(p) if g is None else g).flatten() for p, g in zip(model.parameters(), found, strict=True)]
    )


@torch.no_grad()
def put(model: nn.Module, theta: Tensor) -> None:
    nn.utils.vector_to_parameters(theta, model.parameters())


class Quadratic:
    """SGD on the loss and `strength sum_i W_i (theta_i - anchor_i)^2` times a factor."""

    def __init__(self, world: World, lr: float, strength: float) -> None:
        self.world, self.lr, self.strength = world, lr, strength
        self.W, self.anchor = torch.zeros_like(flat(world.model)), flat(world.model)

    def step(self, batch) -> None:
        g, theta = gradient(self.world.loss(batch), self.world.model), flat(self.world.model)
        pull = 2 * self.strength * self.factor * self.W * (theta - self.anchor)
        new = theta - self.lr * (g + pull * self.taking_part(g))
        self.saw(g, new - theta)
        put(self.world.model, new)

    def taking_part(self, g: Tensor) -> Tensor:
        """Heads of other tasks stay where they are."""
        model = self.world.model
        names = [name for name, _ in model.named_parameters()]
        now = getattr(model, "now", None)
        parts = [not name.startswith("heads") or name.startswith(f"heads.{now}.") for name in names]
        return torch.cat(
            [torch.full((p.numel(),), float(part)) for p, part in zip(model.parameters(), parts, strict=True)]
        )


class DenseSI(Quadratic):
    """Zenke et al.: the surrogate loss of eq. 4, the importance of eq. 5."""

    factor = 1.0

    def __init__(self, world: World, lr: float, strength: float, xi: float) -> None:
        super().__init__(world, lr, strength)
        self.xi, self.start, self.omega = xi, flat(world.model), torch.zeros_like(self.W)

    def saw(self, g: Tensor, change: Tensor) -> None:
        self.omega -= g * change

    def end_task(self, batches) -> None:
        self.anchor = flat(self.world.model)
        self.W = (self.W + self.omega / ((self.anchor - self.start) ** 2 + self.xi)).clamp(min=0)
        self.start, self.omega = self.anchor, torch.zeros_like(self.W)


class DenseMAS(Quadratic):
    """Aljundi et al.: the importance of eq. 3, one sample at a time, and the loss of eq. 4."""

    factor = 0.5

    def saw(self, g: Tensor, change: Tensor) -> None:
        return

    def end_task(self, batches) -> None:
        world, total, count = self.world, torch.zeros_like(self.W), 0
        for batch in batches:
            for n in range(len(batch[0])):
                outputs, _ = world.ask(world.model, tuple(part[n : n + 1] for part in batch))
                total += gradient(outputs.square().sum(), world.model).abs()
                count += 1
        self.W, self.anchor = self.W + total / count, flat(world.model)


def importance(optimizer: fopng.ContinualOptimizer) -> Tensor:
    """What parameters are pulled with, `[p]`."""
    return flat_vector(optimizer.pipeline.state.weights, optimizer.layout.shapes)


def assert_follows(name: str, dense: Quadratic, world: World, settings: dict, epochs: int = 2) -> None:
    optimizer = make(name, world, **settings)
    for task, loader in enumerate(world.loaders):
        world.enter(task), dense.world.enter(task), optimizer.begin_task(task)
        for _ in range(epochs):
            optimizer.refresh(loader)
            for batch in loader:
                optimizer.zero_grad()
                world.loss(batch).backward()
                optimizer.step()
                dense.step(batch)
                torch.testing.assert_close(flat(world.model), flat(dense.world.model), rtol=1e-10, atol=1e-12)
        optimizer.end_task(loader)
        dense.end_task(loader)
        torch.testing.assert_close(importance(optimizer), dense.W, rtol=1e-8, atol=1e-12)
    assert dense.W.max() > 1e-6


@pytest.mark.parametrize("heads", WORLDS)
@pytest.mark.parametrize(("strength", "xi"), [(1.0, 0.1), (0.3, 1e-3)])
def test_synaptic_intelligence(heads, strength, xi):
    world = WORLDS[heads]()
    dense = DenseSI(world.twin(), 0.05, strength, xi)
    assert_follows("SI", dense, world, {"strength": strength, "damping": xi})


@pytest.mark.parametrize("heads", WORLDS)
def test_memory_aware_synapses(heads):
    world = WORLDS[heads]()
    assert_follows("MAS", DenseMAS(world.twin(), 0.05, 0.7), world, {"strength": 0.7})


@pytest.mark.parametrize("build", [zoo.cnn, zoo.transformer, zoo.tied, zoo.used_twice])
def test_the_sensitivity_of_models_of_every_kind(build):
    case = build()
    world = World(case.model.eval(), [[case.batch]], case.ask)
    optimizer = fopng.MAS(world.model, 0.1, predict=case.ask)
    run(optimizer, world)
    dense = DenseMAS(world, 0.1, 1.0)
    dense.end_task(world.loaders[0])
    torch.testing.assert_close(importance(optimizer), dense.W, rtol=1e-8, atol=1e-12)


@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.Adam])
def test_the_path_of_the_first_task_counts_whoever_walks_it(kind):
    world = single_head()
    optimizer = make("SI", world, first_task=kind(world.model.parameters(), lr=0.02), damping=0.1)
    start, omega = flat(world.model), torch.zeros_like(flat(world.model))
    optimizer.begin_task(0)
    for batch in world.loaders[0]:
        optimizer.zero_grad()
        world.loss(batch).backward()
        g, before = torch.cat([p.grad.flatten() for p in world.model.parameters()]), flat(world.model)
        optimizer.step()
        omega -= g * (flat(world.model) - before)
    optimizer.end_task(world.loaders[0])
    expected = (omega / ((flat(world.model) - start) ** 2 + 0.1)).clamp(min=0)
    torch.testing.assert_close(importance(optimizer), expected, rtol=1e-8, atol=1e-14)


def test_sensitivity_needs_no_labels():
    """And some samples do, drawn anew."""
    model = nn.Linear(3, 2).double()
    x = torch.randn(9, 3, dtype=torch.float64)
    optimizer = fopng.MAS(model, 0.1, predict=lambda m, batch: (m(batch), None), sensitivity_samples=4)
    optimizer.begin_task(0)
    optimizer.end_task([x])
    each = [gradient(model(own).square().sum(), model).abs() for own in x]
    found = importance(optimizer) * 4
    assert any(torch.allclose(found, sum(some)) for some in combinations(each, 4))


@pytest.mark.parametrize(("name", "settings"), [("SI", {"strength": 5.0, "damping": 0.1}), ("MAS", {"strength": 20.0})])
def test_what_mattered_moves_less(name, settings):
    """Against plain SGD on a second task that contradicts the first."""
    moved = {}
    for method, own in (("SGD", {}), (name, settings)):
        torch.manual_seed(0)
        world = single_head()
        world.loaders[1] = [(x, (y + 1) % 3) for x, y in world.loaders[0]]
        optimizer = make(method, world, 0.05, **own)
        run(optimizer, world, range(1), epochs=20)
        before = world.loss(world.whole(0)).item()
        run(optimizer, world, range(1, 2), epochs=5)
        moved[method] = world.loss(world.whole(0)).item() - before
    assert moved[name] < 0.8 * moved["SGD"]


def test_without_strength_they_are_sgd():
    results = []
    for name, settings in (("SGD", {}), ("SI", {"strength": 0.0}), ("MAS", {"strength": 0.0})):
        torch.manual_seed(0)
        world = single_head()
        results.append(run(make(name, world, **settings), world))
    assert torch.equal(results[0], results[1])
    assert torch.equal(results[0], results[2])
