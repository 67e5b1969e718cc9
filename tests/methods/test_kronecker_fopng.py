"""What is claimed of the step that is held back: its limits, what it is indifferent to, what it costs."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import fopng
from flat import flat as flat_vector
from flat import named
from fopng.core.vector import Vector
from fopng.curvature.moments import LayerMoments, Moments
from fopng.optim import fopng_k
from fopng.optim.kronecker_base import KroneckerState, used_parameters
from methods.worlds import World, flat, live, make, multi_head, run, single_head

NAME = "KroneckerFOPNG"
SHAPES = {name: p.shape for name, p in single_head().model.named_parameters()}
FIRST = ("0.weight", "0.bias")


def method_of(**settings) -> fopng.methods.KroneckerFOPNG:
    return fopng.methods.KroneckerFOPNG(**{"tolerance": None, "rehearse": 0.0, "strength": 30.0, **settings})


def remembering(method: fopng.methods.KroneckerFOPNG, *tasks: Moments) -> KroneckerState:
    """What is kept after these tasks."""
    state = KroneckerState()
    for moments in tasks:
        state = method.remembered(state, moments)
    return state


def diagonal(rest: Tensor) -> Moments:
    """Moments `[*lead, 39]` without a layer."""
    return Moments({}, named(rest, SHAPES))


def held_back(method: fopng.methods.KroneckerFOPNG, state: KroneckerState, g: Tensor, shapes=SHAPES) -> Tensor:
    """What is left of a gradient, `[*lead, p]`."""
    remover = method.prepare(state, shapes).remover
    return g if remover is None else flat_vector(remover(named(g, shapes)), shapes)


def dense_fisher(method: fopng.methods.KroneckerFOPNG, state: KroneckerState, shapes=SHAPES) -> Tensor:
    """`F_old [p, p]`."""
    fisher = method.old_fisher(state.moments, shapes)
    size = sum(shape.numel() for shape in shapes.values())
    columns = torch.eye(size, dtype=torch.float64)
    return torch.stack([flat_vector(fisher(named(column, shapes)), shapes) for column in columns], -1)


def twins():
    world = single_head()
    return world, world.twin()


def test_without_strength_it_is_sgd():
    world, other = twins()
    found, expected = run(make(NAME, world, strength=0.0), world), run(make("SGD", other), other)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-14)


def test_endless_strength_freezes_layers_that_old_tasks_fill():
    """As many samples as inputs, as many outputs as units: every direction matters to the old task."""
    model = nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 4)).double()
    loader = [(torch.randn(40, 3, dtype=torch.float64), torch.randint(4, (40,)))]
    world = World(model, [loader, [(x + 1, y) for x, y in loader]])
    optimizer = make(NAME, world, strength=1e12)
    run(optimizer, world, range(1))
    before = flat(model)
    run(optimizer, world, range(1, 2), epochs=20)
    torch.testing.assert_close(flat(model), before, rtol=0, atol=1e-8)


def test_inputs_that_no_old_task_uses_stay_free():
    """Endless strength, but two inputs were always zero: only their weights move."""
    model = nn.Linear(5, 3, bias=False).double()
    x = torch.randn(40, 5, dtype=torch.float64)
    x[:, 3:] = 0
    world = World(model, [[(x, torch.randint(3, (40,)))], [(torch.randn_like(x), torch.randint(3, (40,)))]])
    optimizer = make(NAME, world, strength=1e12)
    run(optimizer, world, range(1))
    before = model.weight.detach().clone()
    run(optimizer, world, range(1, 2), epochs=20)
    moved = (model.weight.detach() - before).abs()
    assert moved[:, :3].max() < 1e-8
    assert moved[:, 3:].min() > 1e-4


def after_one_task(strength):
    """A layer whose last two of six inputs were always zero in the one task done: what is left of gradients, `F_old`, and s."""
    model = nn.Linear(6, 3).double()
    x = torch.randn(40, 6, dtype=torch.float64)
    x[:, 4:] = 0
    world = World(model, [[(x, torch.randint(3, (40,)))]])
    optimizer = make(NAME, world, strength=strength)
    run(optimizer, world)
    method, state, shapes = optimizer.method, optimizer.pipeline.state, optimizer.layout.shapes

    def left(g: Tensor) -> Tensor:
        return held_back(method, state, g, shapes)

    return left, dense_fisher(method, state, shapes), method.weight(state)


@pytest.mark.parametrize("strength", [1.0, 30.0, 1e4])
def test_a_step_moves_old_answers_no_more_than_is_promised(strength):
    """`v^T F_old v <= |g|^2 / 4s` and `g^T v >= |v|^2`, in the method's own unit, also along the eigenvectors of `F_old`."""
    left, F_old, s = after_one_task(strength)
    for g in [*torch.randn(10, 21, dtype=torch.float64), *torch.linalg.eigh(F_old)[1].T]:
        v = left(g)
        assert v @ F_old @ v <= g @ g / (4 * s)
        assert (1 + 1e-12) * g @ v >= v @ v > 0


def test_what_no_old_task_uses_is_as_free_as_under_sgd():
    """Whatever the strength: a gradient along the weights of inputs that were always zero is the step."""
    left, F_old, _ = after_one_task(1e6)
    g = torch.zeros(21, dtype=torch.float64)
    g[:18].view(3, 6)[:, 4:] = torch.randn(3, 2, dtype=torch.float64)
    assert (F_old @ g).abs().max() < 1e-12 < F_old.abs().max()
    torch.testing.assert_close(left(g), g, rtol=1e-9, atol=1e-9)


def test_endless_strength_projects_onto_what_no_old_task_uses():
    """Where old inputs do not fill their space: `I - F^+ F`, the orthogonal projection onto what `F_old` takes to zero."""
    left, F_old, _ = after_one_task(1e13)
    g = torch.randn(21, dtype=torch.float64)
    projected = g - torch.linalg.pinv(F_old, rtol=1e-10, hermitian=True) @ (F_old @ g)
    assert 0.1 < projected.norm() / g.norm() < 0.95
    torch.testing.assert_close(left(g), projected, rtol=1e-7, atol=1e-7)


def test_one_task_and_one_sample_in_the_limit_are_ogd(monkeypatch):
    """One layer, one sample, no evenness: `F` is the square of its gradient, and what is left is orthogonal to it."""
    monkeypatch.setattr(fopng_k, "EVENNESS", 0.0)
    torch.manual_seed(1)
    start = nn.Linear(4, 3).double()
    sample = [(torch.randn(1, 4, dtype=torch.float64), torch.tensor([2]))]
    new = [(torch.randn(6, 4, dtype=torch.float64), torch.randint(3, (6,)))]
    ends = []
    settings = (
        (NAME, {"strength": 1e13, "signals": "observed"}),
        ("OGD", {"score": "log-likelihood", "gram_damping": 0.0}),
    )
    for name, own in settings:
        world = World(copy.deepcopy(start), [sample, new])
        optimizer = make(name, world, first_task="own", **own)
        for task in range(2):
            optimizer.begin_task(task)
            if task:
                for _ in range(5):
                    optimizer.zero_grad()
                    world.loss(new[0]).backward()
                    optimizer.step()
            optimizer.end_task(world.loaders[task])
        ends.append(flat(world.model))
    assert (ends[0] - flat(start)).norm() > 1e-2
    torch.testing.assert_close(*ends, rtol=1e-7, atol=1e-9)


def quiet_unit():
    """How far the weights of a unit that is silent in the old task move in the new one, and those of one that speaks."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 2), nn.ReLU(), nn.Linear(2, 2)).double()
    x = torch.rand(40, 3, dtype=torch.float64)
    model[0].weight.data = torch.tensor([[-1.0, -1.0, -1.0], [1.0, 1.0, 1.0]], dtype=torch.float64)
    model[0].bias.data = torch.tensor([-0.1, 0.1], dtype=torch.float64)
    world = World(model, [[(x, torch.randint(2, (40,)))], [(-x, torch.randint(2, (40,)))]])
    optimizer = make(NAME, world, lr=0.1, strength=1e12, first_task="own")
    optimizer.begin_task(0)
    optimizer.end_task(world.loaders[0])
    before = model[0].weight.detach().clone()
    run(optimizer, world, range(1, 2), epochs=5)
    return (model[0].weight.detach() - before).norm(dim=1)


def test_a_unit_that_was_silent_is_held_back_with_the_others(monkeypatch):
    """To first order old answers do not depend on it, and it is free; it could be woken, and with some evenness it is not."""
    assert quiet_unit().max() < 1e-9
    monkeypatch.setattr(fopng_k, "EVENNESS", 0.0)
    silent, speaking = quiet_unit()
    assert silent > 1e-3
    assert speaking < 1e-9


def test_all_outputs_alike_leave_the_inputs_alone_to_decide(monkeypatch):
    """Evenness 1 in one layer: every row of the gradient times the same matrix, `(I + s A / (tr A / i))^-1`."""
    monkeypatch.setattr(fopng_k, "EVENNESS", 1.0)
    method = method_of()
    A, G = torch.rand(6, 6, dtype=torch.float64), torch.rand(4, 4, dtype=torch.float64)
    A, G = A @ A.T, G @ G.T
    state = remembering(method, Moments({FIRST: LayerMoments(A, G)}, Vector({})))
    g = torch.randn(39, dtype=torch.float64)
    M, v = (torch.cat([x[:20].view(4, 5), x[20:24, None]], 1) for x in (g, held_back(method, state, g)))
    held = torch.eye(6, dtype=torch.float64) + method.strength * A / (A.trace() / 6)
    torch.testing.assert_close(v, torch.linalg.solve(held, M.T).T)


def rotated(world: World, Q):
    """The same functions of inputs that are turned, `x -> Q x`: the first layer's weight is turned with them."""
    twin = world.twin()
    twin.model[0].weight.data = world.model[0].weight.data @ Q.T
    twin.loaders = [[(x @ Q.T, y) for x, y in loader] for loader in world.loaders]
    return twin


def test_turning_the_inputs_turns_the_steps():
    """And the answers stay: the method sees no axes but those of the data."""
    Q = torch.linalg.qr(torch.randn(5, 5, dtype=torch.float64))[0]
    world = single_head()
    twin = rotated(world, Q)
    for member in (world, twin):
        run(make(NAME, member, generator=torch.Generator().manual_seed(3)), member)
    x = world.loaders[0][0][0]
    torch.testing.assert_close(twin.model(x @ Q.T), world.model(x), rtol=1e-9, atol=1e-10)


def test_the_diagonal_method_does_see_axes():
    """Or the test above could not fail."""
    Q = torch.linalg.qr(torch.randn(5, 5, dtype=torch.float64))[0]
    world = single_head()
    twin = rotated(world, Q)
    for member in (world, twin):
        run(make("EWC", member), member)
    x = world.loaders[0][0][0]
    assert (twin.model(x @ Q.T) - world.model(x)).abs().max() > 1e-4


def test_eigenvectors_are_worked_out_once_a_task(monkeypatch):
    world = multi_head()
    optimizer = make(NAME, world)
    counted = []
    eigh = torch.linalg.eigh
    monkeypatch.setattr(torch.linalg, "eigh", lambda matrix: counted.append(matrix.shape[-1]) or eigh(matrix))
    run(optimizer, world, range(1))
    assert counted == []
    for task, expected in ((1, [6, 4]), (2, [6, 4])):
        for _ in live(optimizer, world, range(task, task + 1), epochs=3):
            pass
        # the trunk's two; the heads of other tasks take no part
        assert counted == expected
        counted.clear()


def test_a_refresh_costs_nothing():
    """The model is not asked, nothing is drawn, and what was worked out stays."""
    world = single_head()
    optimizer = make(NAME, world)
    run(optimizer, world, range(2))
    optimizer.begin_task(2)
    everything = Vector(dict(world.model.named_parameters()))
    held, drawn = optimizer.pipeline.prepared(everything), optimizer.generator.get_state()
    assert held.remover is not None
    asked = []
    world.model.register_forward_pre_hook(lambda *_: asked.append("the model"))
    optimizer.refresh(world.loaders[2])
    assert asked == []
    assert optimizer.pipeline.prepared(everything) is held
    assert torch.equal(optimizer.generator.get_state(), drawn)
    optimizer.end_task(world.loaders[2])
    assert asked != []


def test_a_bias_that_joins_later_is_held_back_from_then_on():
    world = single_head()
    world.model[0].bias.requires_grad_(False)
    optimizer = make(NAME, world, strength=1e12)
    run(optimizer, world, range(1))
    world.model[0].bias.requires_grad_(True)
    run(optimizer, world, range(1, 2))
    [kept] = [own for names, own in optimizer.pipeline.state.moments.layers.items() if "0.weight" in names]
    assert (kept.inputs.shape[-1], kept.signals.shape[-1]) == (6, 4)
    before = world.model[0].bias.detach().clone()
    run(optimizer, world, range(2, 3))
    assert (world.model[0].bias - before).abs().max() < 1e-6


@pytest.mark.parametrize("groups", [1, 2])
def test_old_answers_change_less_the_more_strength(groups):
    """A network with convolutions and a normalisation, on which nothing is exact."""
    torch.manual_seed(0)
    start = nn.Sequential(
        nn.Conv2d(2, 4, 3, groups=groups), nn.GroupNorm(2, 4), nn.ReLU(), nn.Flatten(), nn.Linear(16, 3)
    )
    tasks = [[(torch.randn(30, 2, 4, 4), torch.randint(3, (30,)))] for _ in range(2)]
    drifts = []
    for strength in (0.0, 10.0, 1000.0):
        world = World(copy.deepcopy(start), tasks)
        optimizer = make(NAME, world, strength=strength, generator=torch.Generator().manual_seed(0))
        run(optimizer, world, range(1))
        before = world.model(tasks[0][0][0]).detach()
        run(optimizer, world, range(1, 2), epochs=30)
        drifts.append(F.mse_loss(world.model(tasks[0][0][0]), before).item())
    assert drifts[0] > 2 * drifts[1] > 4 * drifts[2]


def test_memory_does_not_grow_with_tasks():
    world = single_head()
    optimizer = make(NAME, world)
    sizes = [optimizer.diagnose().bytes for _ in live(optimizer, world)]
    assert len(set(sizes[2:])) == 1
    assert isinstance(optimizer, fopng.KroneckerFOPNG)


def test_strength_means_the_same_whatever_the_scale():
    """Inputs ten times as large, signals three times: the same share of the gradient is left."""
    left = []
    for a, d in ((1.0, 1.0), (10.0, 3.0)):
        torch.manual_seed(0)
        method = method_of()
        A, G = torch.rand(6, 6, dtype=torch.float64), torch.rand(4, 4, dtype=torch.float64)
        moments = LayerMoments(a**2 * A @ A.T, d**2 * G @ G.T)
        rest = (a * d) ** 2 * torch.rand(39, dtype=torch.float64)
        state = remembering(method, Moments({FIRST: moments}, named(rest, SHAPES).without(FIRST)))
        left.append(held_back(method, state, torch.ones_like(rest)))
    assert (left[0] - 1).abs().max() > 0.1
    torch.testing.assert_close(*left)


def test_the_sum_over_tasks_has_the_sums_trace():
    """And its partial trace over the inputs, `sum_t tr(A_t) G_t / f_t`: of tasks that count alike, whatever their scale."""
    moments, tasks = [], []
    for scale in (1.0, 1e-3, 1e3):
        A, G = torch.rand(6, 6, dtype=torch.float64), torch.rand(4, 4, dtype=torch.float64)
        A, G = A @ A.T, G @ G.T
        moments.append(Moments({FIRST: LayerMoments(A, scale * G)}, Vector({})))
        tasks.append(LayerMoments(A, G / (A.trace() * G.trace() / 24)))
    kept = remembering(method_of(), *moments).moments.layers[FIRST]
    torch.testing.assert_close(
        kept.inputs.trace() * kept.signals, sum(own.inputs.trace() * own.signals for own in tasks)
    )
    torch.testing.assert_close(kept.inputs, sum(own.inputs for own in tasks))
    torch.testing.assert_close(kept.inputs.trace() * kept.signals.trace(), torch.tensor(3 * 24.0).double())


def test_tasks_count_alike_whatever_their_scale():
    """Of two Fishers, one 50 times the other, both weigh half of s in the mean over the parameters they used."""
    method, tasks = method_of(strength=7.0), []
    for scale, place in ((1.0, slice(0, 10)), (50.0, slice(10, 20))):
        rest = torch.zeros(39, dtype=torch.float64)
        rest[place] = scale
        tasks.append(diagonal(rest))
    state = remembering(method, *tasks)
    held = method.weight(state) * flat_vector(method.old_fisher(state.moments, SHAPES).diagonal, SHAPES)
    torch.testing.assert_close(held[:20], torch.full((20,), 3.5).double())
    assert (held[20:] == 0).all()


def test_a_task_that_sends_nothing_back_holds_nothing():
    """Alone, and beside one that does."""
    method = method_of(strength=7.0)
    g = torch.randn(39, dtype=torch.float64)
    silent, speaking = diagonal(torch.zeros_like(g)), diagonal(torch.full_like(g, 1e-4))
    torch.testing.assert_close(held_back(method, remembering(method, silent), g), g)
    both = remembering(method, silent, speaking)
    torch.testing.assert_close(held_back(method, both, g), g / (1 + 3.5))


def test_replicas_have_units_and_strengths_of_their_own():
    """Two side by side, one of which nothing comes back to at first: as one by one."""
    strengths, g = torch.tensor([3.0, 7.0]).double(), torch.randn(2, 39, dtype=torch.float64)
    tasks = [torch.rand(2, 39, dtype=torch.float64) * torch.tensor([[1.0], [c]]) for c in (0.0, 1e-3)]
    both, *alone = (method_of(strength=s) for s in (strengths, *map(float, strengths)))
    expected = []
    for r, member in enumerate(alone):
        state = remembering(member, *(diagonal(rest[r]) for rest in tasks))
        expected.append(held_back(member, state, g[r]))
    found = held_back(both, remembering(both, *map(diagonal, tasks)), g)
    torch.testing.assert_close(found, torch.stack(expected))


@pytest.mark.parametrize("stop", [0, 1])
def test_a_state_goes_on_with_its_units(stop):
    world = single_head()
    other = world.twin()
    run(make(NAME, world, generator=torch.Generator().manual_seed(1)), world)
    first = make(NAME, other, generator=torch.Generator().manual_seed(1))
    run(first, other, range(stop + 1))
    second = make(NAME, other)
    second.load_state_dict(first.state_dict())
    run(second, other, range(stop + 1, 3))
    assert torch.equal(flat(world.model), flat(other.model))


def test_strength_means_the_same_however_many_tasks():
    """What is held back, in the mean over parameters that are used: the strength."""
    method, state = method_of(strength=7.0), KroneckerState()
    theta = named(torch.ones(39, dtype=torch.float64), SHAPES)
    for _ in range(3):
        A, G = torch.rand(6, 6, dtype=torch.float64), torch.rand(4, 4, dtype=torch.float64)
        rest = torch.zeros(39, dtype=torch.float64)
        rest[30:] = torch.rand(9)
        own = Moments({FIRST: LayerMoments(A @ A.T, G @ G.T)}, named(rest, SHAPES).without(FIRST))
        state = method.remembered(state, own)
        held = method.weight(state) * dense_fisher(method, state).trace()
        used = flat_vector(used_parameters(state.moments, theta), SHAPES).sum()
        torch.testing.assert_close(held / used, torch.tensor(7.0).double())


class Failing(list):
    """A loader that fails when it is walked for the second time."""

    walks = 0

    def __iter__(self):
        self.walks += 1
        if self.walks == 2:
            raise OSError("The disk is gone.")
        return super().__iter__()


def test_a_task_that_could_not_be_ended_counts_once():
    world = single_head()
    optimizer = make(NAME, world)
    optimizer.begin_task(0)
    world.loss(world.loaders[0][0]).backward()
    optimizer.step()
    with pytest.raises(OSError, match="gone"):
        optimizer.end_task(Failing(world.loaders[0]))
    assert optimizer.pipeline.state.tasks == 0
    optimizer.step()
    optimizer.end_task(world.loaders[0])
    assert optimizer.pipeline.state.tasks == 1


def test_a_call_without_gradients_is_no_step():
    world = single_head()
    optimizer = make(NAME, world)
    optimizer.begin_task(0)
    for _ in range(3):
        optimizer.step()
    optimizer.end_task(world.loaders[0])
    assert optimizer.steps == 0
