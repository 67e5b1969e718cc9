"""What is claimed of the step that is held back: its limits, what it is indifferent to, what it costs."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import fopng
from fopng.curvature.moments import LayerMoments, Moments
from methods.worlds import World, flat, live, make, multi_head, run, single_head

NAME = "KroneckerFOPNG"


def twins():
    world = single_head()
    return world, world.twin()


def test_without_strength_it_is_sgd():
    world, other = twins()
    found, expected = run(make(NAME, world, strength=0.0, merging=0.0), world), run(make("SGD", other), other)
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
    """A layer whose last two of six inputs were always zero in the one task that is done: its method, and `F_old` written out."""
    model = nn.Linear(6, 3).double()
    x = torch.randn(40, 6, dtype=torch.float64)
    x[:, 4:] = 0
    world = World(model, [[(x, torch.randint(3, (40,)))]])
    optimizer = make(NAME, world, strength=strength)
    run(optimizer, world)
    columns = torch.eye(21, dtype=torch.float64)
    return optimizer.method, torch.stack([optimizer.method.old_fisher()(column) for column in columns], -1)


@pytest.mark.parametrize("strength", [1.0, 30.0, 1e4])
def test_a_step_moves_old_answers_no_more_than_is_promised(strength):
    """`v^T F_old v <= |g|^2 / 4s` and `g^T v >= |v|^2`, in the method's own unit, also along the eigenvectors of `F_old`."""
    method, F_old = after_one_task(strength)
    s = method.weight()
    for g in [*torch.randn(10, 21, dtype=torch.float64), *torch.linalg.eigh(F_old)[1].T]:
        v = method.held_back(g)
        assert v @ F_old @ v <= g @ g / (4 * s)
        assert (1 + 1e-12) * g @ v >= v @ v > 0


def test_what_no_old_task_uses_is_as_free_as_under_sgd():
    """Whatever the strength: a gradient along the weights of inputs that were always zero is the step."""
    method, F_old = after_one_task(1e6)
    g = torch.zeros(21, dtype=torch.float64)
    g[:18].view(3, 6)[:, 4:] = torch.randn(3, 2, dtype=torch.float64)
    assert (F_old @ g).abs().max() < 1e-12 < F_old.abs().max()
    torch.testing.assert_close(method.held_back(g), g, rtol=1e-9, atol=1e-9)


def test_endless_strength_projects_onto_what_no_old_task_uses():
    """Where old inputs do not fill their space: `I - F^+ F`, the orthogonal projection onto what `F_old` takes to zero."""
    method, F_old = after_one_task(1e13)
    g = torch.randn(21, dtype=torch.float64)
    projected = g - torch.linalg.pinv(F_old, rtol=1e-10, hermitian=True) @ (F_old @ g)
    assert 0.1 < projected.norm() / g.norm() < 0.95
    torch.testing.assert_close(method.held_back(g), projected, rtol=1e-7, atol=1e-7)


def test_one_task_and_one_sample_in_the_limit_are_ogd():
    """One layer, one sample: `F` is the square of its gradient, and what is left is orthogonal to it."""
    torch.manual_seed(1)
    start = nn.Linear(4, 3).double()
    sample = [(torch.randn(1, 4, dtype=torch.float64), torch.tensor([2]))]
    new = [(torch.randn(6, 4, dtype=torch.float64), torch.randint(3, (6,)))]
    ends = []
    settings = (
        (NAME, {"strength": 1e13, "signals": "observed", "evenness": 0.0, "merging": 0.0}),
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


def quiet_unit(evenness):
    """How far the weights of a unit that is silent in the old task move in the new one, and those of one that speaks."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 2), nn.ReLU(), nn.Linear(2, 2)).double()
    x = torch.rand(40, 3, dtype=torch.float64)
    model[0].weight.data = torch.tensor([[-1.0, -1.0, -1.0], [1.0, 1.0, 1.0]], dtype=torch.float64)
    model[0].bias.data = torch.tensor([-0.1, 0.1], dtype=torch.float64)
    world = World(model, [[(x, torch.randint(2, (40,)))], [(-x, torch.randint(2, (40,)))]])
    optimizer = make(NAME, world, lr=0.1, strength=1e12, evenness=evenness, first_task="own")
    optimizer.begin_task(0)
    optimizer.end_task(world.loaders[0])
    before = model[0].weight.detach().clone()
    run(optimizer, world, range(1, 2), epochs=5)
    return (model[0].weight.detach() - before).norm(dim=1)


def test_a_unit_that_was_silent_is_held_back_with_the_others():
    """To first order old answers do not depend on it, and it is free; it could be woken, and with some evenness it is not."""
    silent, speaking = quiet_unit(0.0)
    assert silent > 1e-3
    assert speaking < 1e-9
    assert quiet_unit(0.1).max() < 1e-9


def test_all_outputs_alike_leave_the_inputs_alone_to_decide():
    """Evenness 1 in one layer: every row of the gradient times the same matrix, `(I + s A / (tr A / i))^-1`."""
    method = make(NAME, single_head(), evenness=1.0).method
    A, G = torch.rand(6, 6, dtype=torch.float64), torch.rand(4, 4, dtype=torch.float64)
    A, G = A @ A.T, G @ G.T
    method.remember(Moments({("0.weight", "0.bias"): LayerMoments(A, G)}, torch.zeros(39, dtype=torch.float64)))
    g = torch.randn(39, dtype=torch.float64)
    M, v = (torch.cat([x[:20].view(4, 5), x[20:24, None]], 1) for x in (g, method.held_back(g)))
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
    held, drawn = optimizer.method.remover, optimizer.generator.get_state()
    asked = []
    world.model.register_forward_pre_hook(lambda *_: asked.append("the model"))
    optimizer.refresh(world.loaders[2])
    assert asked == []
    assert optimizer.method.remover is held is not None
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
    assert {tensor.shape[-1] for name, tensor in optimizer.method.matrices.items() if "0.weight" in name} == {6, 4}
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


@pytest.mark.parametrize("balance", [0.0, 0.5, 1.0])
def test_strength_means_the_same_whatever_the_scale(balance):
    """Inputs ten times as large, signals three times: the same share of the gradient is left."""
    left = []
    for a, d in ((1.0, 1.0), (10.0, 3.0)):
        torch.manual_seed(0)
        world = single_head()
        optimizer = make(NAME, world, balance=balance)
        A, G = torch.rand(6, 6, dtype=torch.float64), torch.rand(4, 4, dtype=torch.float64)
        moments = LayerMoments(a**2 * A @ A.T, d**2 * G @ G.T)
        rest = (a * d) ** 2 * torch.rand(flat(world.model).shape, dtype=torch.float64)
        rest[: 4 * 6] = 0
        optimizer.method.remember(Moments({("0.weight", "0.bias"): moments}, rest))
        left.append(optimizer.method.held_back(torch.ones_like(rest)))
    assert (left[0] - 1).abs().max() > 0.1
    torch.testing.assert_close(*left)


def test_the_sum_over_tasks_has_the_sums_trace():
    """And its partial trace over the inputs, `sum_t tr(A_t) G_t / f_t`: of tasks that count alike, whatever their scale."""
    method = make(NAME, single_head()).method
    names, tasks = ("0.weight", "0.bias"), []
    for scale in (1.0, 1e-3, 1e3):
        A, G = torch.rand(6, 6, dtype=torch.float64), torch.rand(4, 4, dtype=torch.float64)
        A, G = A @ A.T, G @ G.T
        method.remember(Moments({names: LayerMoments(A, scale * G)}, torch.zeros(39, dtype=torch.float64)))
        tasks.append(LayerMoments(A, G / (A.trace() * G.trace() / 24)))
    kept = [method.matrices[f'["{kind}", "0.weight", "0.bias"]'] for kind in ("inputs", "signals")]
    torch.testing.assert_close(kept[0].trace() * kept[1], sum(own.inputs.trace() * own.signals for own in tasks))
    torch.testing.assert_close(kept[0], sum(own.inputs for own in tasks))
    torch.testing.assert_close(kept[0].trace() * kept[1].trace(), torch.tensor(3 * 24.0).double())


@pytest.mark.parametrize("balance", [0.0, 0.4, 1.0])
def test_tasks_count_as_alike_as_asked(balance):
    """Of two Fishers the larger, c times the other, weighs `c^(1 - balance)` times as much; at both ends both weigh 2 s."""
    method, c = make(NAME, single_head(), balance=balance, strength=7.0, evenness=0.0).method, 50.0
    for scale, place in ((1.0, slice(0, 10)), (c, slice(10, 20))):
        rest = torch.zeros(39, dtype=torch.float64)
        rest[place] = scale
        method.remember(Moments({}, rest))
    held = method.weight() * method.old_fisher().diagonal
    assert held[0] > 0
    torch.testing.assert_close(held[10] / held[0], torch.tensor(c ** (1 - balance)).double())
    if balance in (0.0, 1.0):
        torch.testing.assert_close(held.sum() / 10, torch.tensor(2 * 7.0).double())


@pytest.mark.parametrize("balance", [0.0, 0.4, 1.0])
def test_a_task_that_sends_nothing_back_holds_nothing(balance):
    """Alone, and beside one that does, which then has the weight of both unless all count alike."""
    method = make(NAME, single_head(), balance=balance, strength=7.0).method
    g = torch.randn(39, dtype=torch.float64)
    method.remember(Moments({}, torch.zeros(39, dtype=torch.float64)))
    torch.testing.assert_close(method.held_back(g), g)
    method.remember(Moments({}, torch.full_like(g, 1e-4)))
    method.forget_derived()
    torch.testing.assert_close(method.held_back(g), g / (1 + 7.0 * 2 ** (1 - balance)))


def test_replicas_have_units_of_their_own():
    """Two side by side, one of which nothing comes back to, with a balance each: as one by one."""
    balances, g = torch.tensor([0.0, 0.5]).double(), torch.randn(2, 39, dtype=torch.float64)
    tasks = [torch.rand(2, 39, dtype=torch.float64) * torch.tensor([[1.0], [c]]) for c in (0.0, 1e-3)]
    both, *alone = (make(NAME, single_head(), balance=float(b)).method for b in (1.0, *balances))
    both.balance = balances
    for rest in tasks:
        both.remember(Moments({}, rest))
        for member, own in zip(alone, rest, strict=True):
            member.remember(Moments({}, own))
    expected = torch.stack([member.held_back(own) for member, own in zip(alone, g, strict=True)])
    torch.testing.assert_close(both.held_back(g), expected)


@pytest.mark.parametrize("stop", [0, 1])
def test_a_state_goes_on_with_its_units(stop):
    world = single_head()
    other = world.twin()
    run(make(NAME, world, balance=0.3, generator=torch.Generator().manual_seed(1)), world)
    first = make(NAME, other, balance=0.3, generator=torch.Generator().manual_seed(1))
    run(first, other, range(stop + 1))
    second = make(NAME, other, balance=0.3)
    second.load_state_dict(first.state_dict())
    run(second, other, range(stop + 1, 3))
    assert torch.equal(flat(world.model), flat(other.model))


@pytest.mark.parametrize("growth", [0.0, 0.5, 1.0])
def test_what_is_held_back_grows_with_tasks_as_asked(growth):
    """In the mean over parameters that are used, strength times `T^growth`: with growth 0 two tasks count as one, with 1 as two."""
    method = make(NAME, single_head(), growth=growth, strength=7.0).method
    for tasks in (1, 2, 3):
        A, G = torch.rand(6, 6, dtype=torch.float64), torch.rand(4, 4, dtype=torch.float64)
        rest = torch.zeros(39, dtype=torch.float64)
        rest[30:] = torch.rand(9)
        method.remember(Moments({("0.weight", "0.bias"): LayerMoments(A @ A.T, G @ G.T)}, rest))
        method.forget_derived()
        held_back = method.weight() * torch.stack(
            [method.old_fisher()(e)[k] for k, e in enumerate(torch.eye(39).double())]
        )
        torch.testing.assert_close(held_back.sum() / method.used().sum(), torch.tensor(7.0 * tasks**growth).double())


def lived(steps, **settings):
    """An optimizer after tasks of so many steps each."""
    world = single_head()
    optimizer = make(NAME, world, strength=7.0, **settings)
    for task, count in enumerate(steps):
        optimizer.begin_task(task)
        for _ in range(count):
            optimizer.zero_grad()
            world.loss(world.loaders[0][0]).backward()
            optimizer.step()
        optimizer.end_task(world.loaders[0])
    return optimizer


@pytest.mark.parametrize(
    ("steps", "share"), [([2], 0.2), ([2, 6], 0.4), ([20], 1.0), ([8, 16], 1.0), ([0, 2], 0.2), ([2, 0], 0.2), ([0], 1)]
)
def test_short_tasks_are_held_back_in_proportion(steps, share):
    """To the mean over old tasks that took steps; one that was learnt elsewhere says nothing."""
    method, g = lived(steps, full_steps=10).method, torch.randn(39, dtype=torch.float64)
    assert float(method.full_share()) == pytest.approx(share)
    found = method.held_back(g)
    method.full_steps, method.strength = 0, share * method.strength
    method.forget_derived()
    assert float(method.full_share()) == 1
    assert (found - g).norm() > 1e-2
    torch.testing.assert_close(found, method.held_back(g))


def test_steps_of_the_optimizer_that_learns_the_first_task_count():
    world = single_head()
    first = torch.optim.SGD(world.model.parameters(), lr=0.1)
    optimizer = make(NAME, world, full_steps=10, first_task=first)
    run(optimizer, world, range(1), epochs=2)
    assert float(optimizer.method.full_share()) == pytest.approx(0.2 * len(world.loaders[0]))


@pytest.mark.parametrize("epochs", [1, 2])
def test_a_state_in_mid_task_knows_when_its_task_began(epochs):
    world = single_head()
    first = make(NAME, world, full_steps=50)
    run(first, world, range(1), epochs=3)
    states = [first.state_dict() for _ in live(first, world, range(1, 2), epochs=epochs)]
    second = make(NAME, world, full_steps=50)
    second.load_state_dict(states[0])
    for _ in range(len(states) - 1):
        second.zero_grad()
        world.loss(world.loaders[1][0]).backward()
        second.step()
    second.end_task(world.loaders[1])
    assert float(second.method.full_share()) == float(first.method.full_share()) < 1


def without_steps(state):
    """A state as it was saved before steps were counted."""
    del state["fopng"]["steps_before"]
    state["fopng"]["state"]["matrices"].pop('["lengths"]', None)
    return state


def test_a_state_from_before_steps_were_counted_has_its_full_strength():
    world = single_head()
    first = make(NAME, world)
    run(first, world, range(2))
    second = make(NAME, world, full_steps=100)
    second.load_state_dict(without_steps(first.state_dict()))
    assert second.method.full_share() == 1.0
    run(second, world, range(2, 3))
    assert float(second.method.full_share()) == pytest.approx(len(world.loaders[2]) / 100)


@pytest.mark.parametrize("task", [0, 1])
def test_a_task_that_began_before_steps_were_counted_says_nothing_but_the_first(task):
    """When the first one began is known."""
    world = single_head()
    first = make(NAME, world)
    run(first, world, range(task))
    first.begin_task(task)
    world.loss(world.loaders[task][0]).backward()
    first.step()
    second = make(NAME, world, full_steps=100)
    second.load_state_dict(without_steps(first.state_dict()))
    second.step()
    second.end_task(world.loaders[task])
    assert float(second.method.full_share()) == pytest.approx([0.02, 1.0][task])


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
    optimizer = make(NAME, world, full_steps=10)
    optimizer.begin_task(0)
    world.loss(world.loaders[0][0]).backward()
    optimizer.step()
    with pytest.raises(OSError, match="gone"):
        optimizer.end_task(Failing(world.loaders[0]))
    optimizer.step()
    optimizer.end_task(world.loaders[0])
    assert optimizer.method.matrices['["lengths"]'].tolist() == [2, 1]


def test_a_call_without_gradients_is_no_step():
    world = single_head()
    optimizer = make(NAME, world, full_steps=10)
    optimizer.begin_task(0)
    for _ in range(3):
        optimizer.step()
    optimizer.end_task(world.loaders[0])
    assert optimizer.steps == 0
    assert optimizer.method.full_share() == 1.0


def test_tasks_without_end_are_never_long_enough():
    assert 0 < float(lived([2], full_steps=10**20).method.full_share()) < 1e-10


def test_by_default_few_steps_are_not_stopped_by_the_strength():
    """The strength is made for thousands of steps: with two hundred, all of it would keep a task from being learnt."""
    torch.manual_seed(0)
    start = nn.Sequential(nn.Linear(16, 30), nn.ReLU(), nn.Linear(30, 4))
    tasks = [[(x, x[:, part].argmax(1)) for x in torch.randn(100, 10, 16)] for part in (slice(4), slice(12, 16))]
    reached = []
    for settings in ({}, {"full_steps": 0}):
        model = copy.deepcopy(start)
        optimizer = fopng.KroneckerFOPNG(model, generator=torch.Generator().manual_seed(0), **settings)
        run(optimizer, World(model, tasks), epochs=2)
        reached.append(sum(float((model(x).argmax(1) == y).double().mean()) for x, y in tasks[1]) / 100)
    assert reached[0] > 0.4 > 0.3 > reached[1]
