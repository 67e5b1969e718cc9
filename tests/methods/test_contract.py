"""What holds for every method: it is a torch optimizer for anyone's loop."""

import enum
import io
import random

import numpy
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import fopng
from methods.worlds import (
    ELASTIC,
    FISHER,
    FREE_RATES,
    INPUTS,
    KRONECKER,
    METHODS,
    PROJECTED,
    REHEARSING,
    STEERED,
    Heads,
    World,
    class_of,
    data,
    flat,
    kept,
    live,
    make,
    multi_head,
    run,
    single_head,
    tensors,
)

# the heads here are chosen behind the batch's back
pytestmark = pytest.mark.filterwarnings("ignore::fopng.HeadChanged")
every_method = pytest.mark.parametrize("name", [*METHODS, STEERED])


def saved(optimizer: torch.optim.Optimizer) -> dict:
    """A state as it comes back from a file."""
    file = io.BytesIO()
    torch.save(optimizer.state_dict(), file)
    file.seek(0)
    return torch.load(file, weights_only=True)


def copied(world: World) -> World:
    """The world in another process: another model with the same parameters."""
    twin = world.twin()
    for parameter in twin.model.parameters():
        parameter.grad = None
    return twin


def test_a_task_that_is_counted_by_an_array_is_saved_as_a_plain_number():
    optimizer = fopng.EWC(nn.Linear(2, 2), 0.1)
    optimizer.begin_task(numpy.int64(3))
    assert saved(optimizer)["fopng"]["task"] == 3
    optimizer.begin_task(3)


def test_a_task_that_is_named_by_an_enumeration_goes_by_the_name():
    class Place(str, enum.Enum):  # noqa: UP042 (whose str() is another than that of a StrEnum)
        HOME = "home"

    optimizer = fopng.SGD(nn.Linear(2, 2), 0.1)
    optimizer.begin_task(Place.HOME)
    optimizer.begin_task("home")


def test_groups_may_be_walked_only_once():
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    optimizer = fopng.SGD(model, 0.1, groups=({"params": layer.parameters(), "lr": 0.5} for layer in model[1:]))
    assert [(len(group["params"]), group["lr"]) for group in optimizer.param_groups] == [(2, 0.1), (2, 0.5)]


def test_what_the_first_optimizer_trains_already_is_stepped_once_when_it_is_unfrozen():
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    model[0].requires_grad_(False)
    first = torch.optim.SGD(model.parameters(), 0.1)
    optimizer = fopng.FOPNG(model, 0.1, first_task=first)
    optimizer.begin_task(0)
    model[0].requires_grad_(True)
    x, y = torch.randn(4, 2), torch.tensor([0, 1, 0, 1])
    for refreshed in (False, True):
        if refreshed:
            optimizer.refresh([(x, y)])
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        before = model[0].weight.detach().clone()
        optimizer.step()
        torch.testing.assert_close(before - model[0].weight, 0.1 * model[0].weight.grad)
    assert len(first.param_groups[0]["params"]) == 4


@every_method
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_a_model_may_change_its_precision_there_and_back(name, dtype):
    """With and without something that looks at the model in between."""
    world = single_head(torch.float32)
    optimizer = make(name, world, momentum=0.5)
    run(optimizer, world, range(1))
    next(live(optimizer, world, range(1, 2), 2))
    (x, y), *_ = world.loaders[1]
    for there, looked_at in ((dtype, False), (torch.float32, False), (dtype, True), (torch.float32, False)):
        world.model.to(there)
        if looked_at:
            optimizer.refresh([(x.to(there), y) for x, y in world.loaders[1]])
        optimizer.zero_grad()
        F.cross_entropy(world.model(x.to(there)), y).backward()
        before = flat(world.model)
        optimizer.step()
        assert flat(world.model).isfinite().all()
        assert not torch.equal(flat(world.model), before)
    optimizer.end_task(world.loaders[1])


@every_method
def test_a_model_may_change_its_precision_in_the_middle_of_a_task(name):
    """The step in float64 is that of a twin that stayed float32, to rounding."""
    world = single_head(torch.float32)
    optimizer = make(name, world, momentum=0.5)
    run(optimizer, world, range(1))
    steps = live(optimizer, world, range(1, 2), 2)
    next(steps)
    twin = world.twin()
    other = make(name, twin, momentum=0.5)
    other.load_state_dict(optimizer.state_dict())
    world.model.double()
    (x, y), *_ = world.loaders[1]
    for model, member, inputs in ((world.model, optimizer, x.double()), (twin.model, other, x)):
        member.zero_grad()
        nn.functional.cross_entropy(model(inputs), y).backward()
        member.step()
    assert flat(world.model).dtype == torch.float64
    torch.testing.assert_close(flat(world.model).float(), flat(twin.model), rtol=1e-3, atol=1e-5)
    world.model.float()
    optimizer.end_task(world.loaders[1])


def snapshot(optimizer) -> dict:
    return {key: tensor.clone() for key, tensor in tensors(optimizer.state_dict()).items()}


def assert_equal(found: dict, expected: dict) -> None:
    assert found.keys() == expected.keys()
    for key in expected:
        torch.testing.assert_close(found[key], expected[key], rtol=0, atol=0, equal_nan=True, msg=key)


# Training


@every_method
def test_goes_down_a_convex_problem(name):
    x, y = torch.randn(32, 5, dtype=torch.float64), torch.randn(32, 2, dtype=torch.float64)
    model = nn.Linear(5, 2).double()
    optimizer = class_of(name)(model, 0.05, likelihood=fopng.Gaussian(), first_task="own")
    optimizer.begin_task(0)
    losses = []
    for _ in range(30):
        optimizer.refresh([(x, y)])
        optimizer.zero_grad()
        loss = F.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.95 * losses[0]
    assert losses[5] < losses[0]


@every_method
def test_goes_down_the_second_task_too(name):
    world = single_head()
    optimizer = make(name, world, lr=0.02, gradients_per_task=1) if name in PROJECTED else make(name, world, lr=0.02)
    run(optimizer, world, range(1))
    before = world.loss(world.whole(1)).item()
    run(optimizer, world, range(1, 2), epochs=5)
    assert world.loss(world.whole(1)).item() < before


@every_method
def test_one_loop_swaps_any_for_any(name):
    """The life cycle of the README, with nothing but defaults."""
    world = single_head(torch.float32)
    optimizer = class_of(name)(world.model, lr=1e-2)
    start = flat(world.model)
    for task, loader in enumerate(world.loaders):
        optimizer.begin_task(task)
        for _ in range(2):
            optimizer.refresh(loader)
            for x, y in loader:
                optimizer.zero_grad()
                F.cross_entropy(world.model(x), y).backward()
                optimizer.step()
        optimizer.end_task(loader)
    assert isinstance(optimizer, torch.optim.Optimizer)
    assert flat(world.model).isfinite().all()
    assert not torch.equal(flat(world.model), start)
    assert (optimizer.tasks_done, optimizer.steps) == (3, 12)


@every_method
def test_follows_a_learning_rate_scheduler(name):
    """The rate that the scheduler sets is the rate of the step."""
    world, free = single_head(), copied(single_head())
    free = World(free.model, world.loaders, world.ask)
    free.model.load_state_dict(world.model.state_dict())
    optimizer, other = make(name, world, 0.08, first_task="own"), make(name, free, 0.08, first_task="own")
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.5)
    by_hand = 0.08
    for (_, _), (_, _) in zip(live(optimizer, world), live(other, free), strict=True):
        assert torch.equal(flat(world.model), flat(free.model))
        scheduler.step()
        by_hand *= 0.5
        other.param_groups[0]["lr"] = by_hand
        assert optimizer.param_groups[0]["lr"] == by_hand


@every_method
def test_leaves_other_heads_alone(name):
    world = multi_head()
    optimizer = make(name, world, momentum=0.5)
    before = {k: v.clone() for k, v in world.model.state_dict().items()}
    for task, _ in live(optimizer, world, epochs=2):
        after = world.model.state_dict()
        for head in range(3):
            same = torch.equal(before[f"heads.{head}.weight"], after[f"heads.{head}.weight"])
            assert same == (head != task), f"head {head} in task {task}"
        assert not torch.equal(before["trunk.weight"], after["trunk.weight"])
        before = {k: v.clone() for k, v in after.items()}


@every_method
def test_zeroed_gradients_of_other_heads_do_not_make_them_take_part(name):
    """`zero_grad(set_to_none=False)` keeps the first head's gradient as zeros; begin_task clears it."""
    world, other = multi_head(), None
    other = copied(world)
    # momentum, so that what is summed up outlives the gradient
    optimizer, plain = make(name, world, momentum=0.5), make(name, other, momentum=0.5)
    for task in range(2):
        for here, stepping in ((world, optimizer), (other, plain)):
            here.enter(task)
            stepping.begin_task(task)
            stepping.refresh(here.loaders[task])
            for batch in here.loaders[task]:
                stepping.zero_grad(set_to_none=stepping is plain)
                here.loss(batch).backward()
                stepping.step()
            stepping.end_task(here.loaders[task])
    assert torch.equal(flat(world.model), flat(other.model))


@every_method
def test_gradients_may_be_accumulated(name):
    """Half a batch twice is the batch."""
    world = single_head()
    other = copied(world)
    halves = World(other.model, other.loaders, other.ask)
    halves.loss = lambda batch: sum(F.cross_entropy(*other.ask(other.model, (x, y))) / 2 for x, y in split(batch))
    found, expected = run(make(name, halves), halves), run(make(name, world), world)
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-12)


def split(batch):
    return [tuple(part[:2] for part in batch), tuple(part[2:] for part in batch)]


@every_method
def test_clipped_gradients_are_the_gradients(name):
    """Clipping scales the gradient: a plain method takes a smaller step, a trust-region one the same."""
    world = single_head()
    clipped = copied(world)
    for here, limit in ((world, None), (clipped, 1e-3)):
        optimizer = make(name, here, first_task="own")
        optimizer.begin_task(0)
        optimizer.refresh(here.loaders[0])
        here.loss(here.loaders[0][0]).backward()
        if limit is not None:
            nn.utils.clip_grad_norm_(here.model.parameters(), limit)
        optimizer.step()
    start = flat(single_head_start())
    long, short = (flat(here.model) - start for here in (world, clipped))
    if name in FISHER:
        torch.testing.assert_close(long, short)
    elif name != "Adam":
        torch.testing.assert_close(short / short.norm(), long / long.norm())
        torch.testing.assert_close(short.norm(), torch.tensor(0.05 * 1e-3, dtype=torch.float64), rtol=1e-2, atol=0)


def single_head_start() -> nn.Module:
    torch.manual_seed(0)
    return single_head().model


@every_method
def test_a_closure_is_called_for_the_loss(name):
    world = single_head()
    other = copied(world)
    run(make(name, world), world)
    optimizer = make(name, other)
    for task, loader in enumerate(other.loaders):
        optimizer.begin_task(task)
        optimizer.refresh(loader)
        for batch in loader:

            def closure(batch=batch):
                optimizer.zero_grad()
                loss = other.loss(batch)
                loss.backward()
                return loss

            expected = other.loss(batch)
            assert torch.equal(optimizer.step(closure), expected)
        optimizer.end_task(loader)
    assert torch.equal(flat(world.model), flat(other.model))


@every_method
def test_mixed_precision_with_a_gradient_scaler(name):
    world = single_head(torch.float32)
    optimizer = make(name, world)
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    start = flat(world.model)
    for task, loader in enumerate(world.loaders):
        optimizer.begin_task(task)
        optimizer.refresh(loader)
        for batch in loader:
            optimizer.zero_grad()
            with torch.autocast("cpu", dtype=torch.bfloat16):
                loss = world.loss(batch)
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(world.model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
        optimizer.end_task(loader)
    assert optimizer.steps == 6
    assert flat(world.model).isfinite().all()
    assert not torch.equal(flat(world.model), start)


@every_method
def test_a_gradient_scaler_skips_a_step_that_overflowed(name):
    world = single_head(torch.float32)
    optimizer = make(name, world)
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    optimizer.begin_task(0)
    before = flat(world.model)
    scaler.scale(world.loss(world.loaders[0][0]) * torch.inf).backward()
    scaler.step(optimizer)
    scaler.update()
    assert torch.equal(flat(world.model), before)
    assert scaler.get_scale() == 4.0


@every_method
def test_estimation_inside_autocast_is_estimation_outside(name):
    world = single_head(torch.float32)
    inside, outside = make(name, world, first_task="own"), make(name, world, first_task="own")
    outside.begin_task(0), outside.refresh(world.loaders[0]), outside.end_task(world.loaders[0])
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside.begin_task(0), inside.refresh(world.loaders[0]), inside.end_task(world.loaders[0])
    assert_equal(snapshot(inside), snapshot(outside))


@every_method
def test_a_step_inside_autocast_is_a_step_outside(name):
    world = single_head(torch.float32)
    other = copied(world)
    for here, inside in ((world, False), (other, True)):
        optimizer = make(name, here)
        run(optimizer, here, range(1))
        optimizer.begin_task(1)
        optimizer.refresh(here.loaders[1])
        here.loss(here.loaders[1][0]).backward()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=inside):
            optimizer.step()
    assert torch.equal(flat(world.model), flat(other.model))


@every_method
def test_half_precision_parameters(name):
    """Everything is kept and worked out in float32, and the parameters stay what they are."""
    world = single_head(torch.bfloat16)
    optimizer = make(name, world)
    start = flat(world.model)
    run(optimizer, world, epochs=2)
    assert {p.dtype for p in world.model.parameters()} == {torch.bfloat16}
    own = {key: t for key, t in kept(optimizer).items() if not key.startswith("/state/samples") and "/form/" not in key}
    assert {t.dtype for t in own.values()} <= {torch.float32, torch.int64}
    assert flat(world.model).isfinite().all()
    assert not torch.equal(flat(world.model), start)


@every_method
def test_parameters_of_two_precisions(name):
    world = single_head(torch.float32)
    world.model[0].to(torch.bfloat16)
    world.ask = lambda model, batch: (model[1:](model[0](batch[0].bfloat16()).float()), batch[1])
    assert run(make(name, world, momentum=0.5), world).isfinite().all()


# Which parameters take part


@every_method
def test_parameters_frozen_from_the_start_stay(name):
    world = single_head()
    world.model[0].weight.requires_grad_(False)
    before = world.model[0].weight.clone()
    start = world.model[0].bias.clone()
    run(make(name, world), world)
    assert torch.equal(world.model[0].weight, before)
    assert not torch.equal(world.model[0].bias, start)


@every_method
def test_parameters_frozen_between_tasks_stay_and_come_back(name):
    world = single_head()
    optimizer = make(name, world, momentum=0.5)
    run(optimizer, world, range(1))
    world.model[0].requires_grad_(False)
    before = world.model[0].weight.clone()
    run(optimizer, world, range(1, 2))
    assert torch.equal(world.model[0].weight, before)
    world.model[0].requires_grad_(True)
    run(optimizer, world, range(2, 3))
    assert not torch.equal(world.model[0].weight, before)


@every_method
def test_parameters_frozen_in_the_middle_of_a_task_stay(name):
    """Although they still hold a gradient."""
    world = single_head()
    optimizer = make(name, world, first_task="own")
    optimizer.begin_task(0)
    optimizer.refresh(world.loaders[0])
    world.loss(world.loaders[0][0]).backward()
    world.model[0].weight.requires_grad_(False)
    before = world.model[0].weight.clone()
    optimizer.step()
    assert torch.equal(world.model[0].weight, before)


@pytest.mark.parametrize("name", [name for name in METHODS if name not in REHEARSING])
def test_with_all_stored_layers_frozen_it_is_the_method_without_memory(name):
    """A new head on a frozen trunk: nothing stored concerns it, nothing is removed, nothing is warned of."""
    world = multi_head()
    optimizer = make(name, world)
    run(optimizer, world, range(1))
    world.model.trunk.requires_grad_(False)
    other = copied(world)
    plain = "FNG" if name in FISHER else "SGD" if name in ("OGD", "SI", "MAS", *ELASTIC, *KRONECKER, *INPUTS) else name
    alone = make(plain, other, first_task="own")
    found, expected = run(optimizer, world, range(1, 2)), run(alone, other, range(1, 2))
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=0)


@every_method
def test_parameters_frozen_at_first_may_join_later(name):
    world = single_head()
    world.model[0].bias.requires_grad_(False)
    optimizer = make(name, world)
    run(optimizer, world, range(1))
    world.model[0].bias.requires_grad_(True)
    before = world.model[0].bias.clone()
    run(optimizer, world, range(1, 3))
    assert not torch.equal(world.model[0].bias, before)


@every_method
def test_a_step_without_any_gradient_changes_nothing(name):
    world = single_head()
    optimizer = make(name, world, first_task="own")
    optimizer.begin_task(0)
    optimizer.refresh(world.loaders[0])
    before, state = flat(world.model), snapshot(optimizer)
    optimizer.step()
    assert torch.equal(flat(world.model), before)
    assert_equal(snapshot(optimizer), state)


@every_method
def test_a_parameter_without_elements_is_no_obstacle(name):
    world = single_head()
    world.model.register_parameter("none", nn.Parameter(torch.zeros(0, 3, dtype=torch.float64)))
    loss = world.loss
    world.loss = lambda batch: loss(batch) + world.model.none.sum()
    found = run(make(name, world), world)
    assert found.isfinite().all()


@every_method
def test_sparse_embedding_gradients_are_the_dense_ones(name):
    results = []
    for sparse in (False, True):
        torch.manual_seed(1)
        model = nn.Sequential(nn.Embedding(7, 3, sparse=sparse), nn.Flatten(), nn.Linear(6, 3)).double()
        loaders = [[(torch.randint(7, (4, 2)), torch.randint(3, (4,)))] for _ in range(3)]
        world = World(model, loaders)
        # words have no moments
        settings = {"probe": 4} if name == STEERED else {}
        results.append(run(make(name, world, **settings), world, epochs=2))
    torch.testing.assert_close(results[1], results[0], rtol=1e-12, atol=1e-14)


@every_method
def test_groups_with_their_own_learning_rates(name):
    world = single_head()
    groups = [{"params": world.model[2].parameters(), "lr": 0.0}]
    if name not in (*FREE_RATES, STEERED):
        with pytest.raises(ValueError, match=f"Expected one learning rate, got .*{name}"):
            make(name, world, groups=groups)
        return
    optimizer = make(name, world, groups=groups)
    head, trunk = world.model[2].weight.clone(), world.model[0].weight.clone()
    run(optimizer, world)
    assert torch.equal(world.model[2].weight, head)
    assert not torch.equal(world.model[0].weight, trunk)


@pytest.mark.parametrize("name", [name for name in METHODS if name not in FREE_RATES])
def test_a_rate_that_is_bent_later_is_refused_and_nothing_moves(name):
    world = single_head()
    optimizer = make(name, world, groups=[{"params": world.model[2].weight}], momentum=0.5, first_task="own")
    optimizer.begin_task(0)
    optimizer.refresh(world.loaders[0])
    optimizer.param_groups[1]["lr"] = 1.0
    world.loss(world.loaders[0][0]).backward()
    before, state = flat(world.model), snapshot(optimizer)
    with pytest.raises(ValueError, match="Expected one learning rate"):
        optimizer.step()
    assert torch.equal(flat(world.model), before)
    assert_equal(snapshot(optimizer), state)


# Estimation leaves no trace


def drawn(name: str, *, fisher_samples: int) -> dict[str, object]:
    """Settings under which a method draws samples and labels, if it estimates anything."""
    if name in INPUTS:
        return {"input_samples": fisher_samples}
    if name in (*KRONECKER, STEERED):
        return {"signals": "sampled", "fisher_samples": fisher_samples}
    return {"labels": "sampled", "fisher_samples": fisher_samples} if name in (*FISHER, *ELASTIC) else {}


class Augmented(TensorDataset):
    """Data that is disturbed at random, with each of the generators that people use."""

    def __getitem__(self, index):
        x, y = super().__getitem__(index)
        return x + torch.randn(()) + random.random() + numpy.random.rand(), y  # noqa: NPY002


@every_method
@pytest.mark.parametrize("settings", [{}, {"fisher_samples": 3}], ids=["plain", "drawn"])
def test_estimation_leaves_no_trace(name, settings):
    settings = drawn(name, **settings) if settings else {}
    model = nn.Sequential(nn.Linear(5, 4), nn.BatchNorm1d(4), nn.Dropout(0.5), nn.Linear(4, 3))
    model[2].eval()
    loader = DataLoader(Augmented(torch.randn(9, 5), torch.randint(3, (9,))), batch_size=4, shuffle=True)
    optimizer = class_of(name)(model, 0.1, first_task="own", **settings)
    optimizer.begin_task(0)
    F.cross_entropy(model(torch.randn(4, 5)), torch.randint(3, (4,))).backward()

    def trace():
        legacy = numpy.random.get_state()[1].astype("int64")  # noqa: NPY002
        python = torch.tensor(random.getstate()[1])
        randomness = {"torch": torch.get_rng_state(), "numpy": torch.tensor(legacy), "python": python}
        gradients = {f"grad {name}": p.grad.clone() for name, p in model.named_parameters()}
        state = {name: value.clone() for name, value in model.state_dict().items()}
        return gradients | state | randomness | {"modes": torch.tensor([m.training for m in model.modules()])}

    before = trace()
    optimizer.refresh(loader)
    assert_equal(trace(), before)
    optimizer.end_task(loader)
    assert_equal(trace(), before)
    assert not any(module._forward_hooks for module in model.modules())


# State


@every_method
@pytest.mark.parametrize("build", [single_head, multi_head])
@pytest.mark.parametrize("stop", [(0, 0), (1, 0), (1, 1), (2, 0)], ids=str)
def test_a_loaded_optimizer_goes_on_to_the_same_bits(name, build, stop):
    """Stopped after a step of a task, in another process, from a file."""
    assert_goes_on(name, build(), stop, drawn(name, fisher_samples=5))


def assert_goes_on(name, world, stop, settings):
    settings = {"momentum": 0.5, **settings}
    optimizer = make(name, world, **settings)
    life = live(optimizer, world)
    while next(life) != stop:
        pass
    state, other = saved(optimizer), copied(world)
    resumed = make(name, other, generator=torch.Generator().manual_seed(99), **settings)
    resumed.load_state_dict(state)
    task, step = stop
    other.enter(task)
    for batch in other.loaders[task][step + 1 :]:
        resumed.zero_grad()
        other.loss(batch).backward()
        resumed.step()
    resumed.end_task(other.loaders[task])
    run(resumed, other, range(task + 1, 3))
    for _ in life:
        pass
    assert torch.equal(flat(world.model), flat(other.model))
    assert_equal(snapshot(resumed), snapshot(optimizer))
    assert resumed.state_dict()["fopng"]["steps"] == optimizer.state_dict()["fopng"]["steps"]


@pytest.mark.parametrize("name", PROJECTED)
@pytest.mark.parametrize("stop", [(1, 1), (2, 0)], ids=str)
def test_a_compressed_memory_is_saved_and_goes_on_to_the_same_bits(name, stop):
    """Stopped before the memory is compressed, with heads that the method has yet to hear of, and after."""
    settings = {"when_full": "compress", "max_directions": 5, "kept_energy": 0.9}
    assert_goes_on(name, multi_head(), stop, settings)


@every_method
def test_a_task_may_be_begun_again_after_loading(name):
    world = single_head()
    optimizer = make(name, world)
    next(live(optimizer, world))
    resumed = make(name, world)
    resumed.load_state_dict(saved(optimizer))
    resumed.begin_task(0)
    with pytest.raises(RuntimeError, match="Task 0 has not been ended"):
        resumed.begin_task(1)


@every_method
def test_a_state_is_a_snapshot(name):
    """What is trained afterwards does not reach back into a state that was taken."""
    world = single_head()
    optimizer = make(name, world, momentum=0.5)
    run(optimizer, world, range(2))
    state = optimizer.state_dict()
    before = {key: tensor.clone() for key, tensor in tensors(state).items()}
    run(optimizer, world, range(2, 3))
    assert_equal(tensors(state), before)


@every_method
def test_a_state_moves_between_precisions(name):
    world = single_head()
    optimizer = make(name, world, momentum=0.5)
    life = live(optimizer, world)
    while next(life) != (1, 0):
        pass
    small = World(copied(world).model.float(), data(dtype=torch.float32), world.ask)
    other = make(name, small, momentum=0.5)
    other.load_state_dict(saved(optimizer))
    floating = [t for t in kept(other).values() if t.is_floating_point()]
    assert {t.dtype for t in floating} <= {torch.float32}
    small.loss(small.loaders[1][0]).backward()
    other.step()
    assert flat(small.model).isfinite().all()


@every_method
def test_a_model_may_change_its_precision_between_tasks(name):
    world = single_head()
    optimizer = make(name, world, momentum=0.5)
    run(optimizer, world, range(2))
    world.model.float()
    world.loaders = data(dtype=torch.float32)
    assert run(optimizer, world, range(2, 3)).dtype == torch.float32
    floating = [t for t in kept(optimizer).values() if t.is_floating_point()]
    assert {t.dtype for t in floating} <= {torch.float32}


@every_method
def test_a_state_of_another_method_or_model_is_refused(name):
    world = single_head()
    state = make(name, world).state_dict()
    other = "SGD" if name != "SGD" else "FOPNG"
    with pytest.raises(ValueError, match=f"Expected the state of a {other}, got one of a {class_of(name).__name__}"):
        make(other, world).load_state_dict(state)
    wide = World(nn.Sequential(nn.Linear(5, 9), nn.Tanh(), nn.Linear(9, 3)), world.loaders)
    with pytest.raises(ValueError, match=r"Expected '0.weight' of shape \(4, 5\), got \(9, 5\)"):
        make(name, wide).load_state_dict(state)
    shallow = World(nn.Sequential(nn.Linear(5, 4)), world.loaders)
    with pytest.raises(ValueError, match=r"2\.weight"):
        make(name, shallow).load_state_dict(state)
    renamed = {**state, "fopng": {**state["fopng"], "state": {"node": "MemoryOfOld"}}}
    with pytest.raises(ValueError, match="MemoryOfOld"):
        make(name, world).load_state_dict(renamed)
    with pytest.raises(ValueError, match="plain torch optimizer"):
        make(name, world).load_state_dict(torch.optim.SGD(world.model.parameters()).state_dict())
    with pytest.raises(ValueError, match="Expected a state with 2 parameter groups, got 1"):
        make(name, world, groups=[{"params": [world.model[0].weight]}]).load_state_dict(state)


@every_method
def test_a_refused_state_leaves_the_optimizer_as_it_was(name):
    world = single_head()
    optimizer = make(name, world, lr=0.3)
    next(live(optimizer, world))
    state, before = make("SGD" if name != "SGD" else "EWC", world).state_dict(), snapshot(optimizer)
    with pytest.raises(ValueError):
        optimizer.load_state_dict(state)
    assert_equal(snapshot(optimizer), before)
    assert optimizer.param_groups[0]["lr"] == 0.3


@every_method
def test_a_new_head_joins_with_zeros(name):
    """As if it had been there all along, whether it is added to a running optimizer or found when a state is loaded."""
    assert_a_head_joins(name, {"momentum": 0.5})


@pytest.mark.parametrize("metric", ["kfac", "ekfac", "low-rank", "full"])
def test_a_new_head_joins_the_fisher_of_old_tasks(metric):
    assert_a_head_joins("FOPNG", {"metric": metric, "fisher_rank": 5}, rtol=1e-9)


@pytest.mark.parametrize("metric", ["kfac", "ekfac", "low-rank", "full"])
def test_a_fisher_of_any_kind_is_saved_and_goes_on_to_the_same_bits(metric):
    assert_goes_on("FOPNG", multi_head(), (2, 0), {"metric": metric, "fisher_rank": 5, "labels": "sampled"})


def assert_a_head_joins(name, settings, rtol=1e-12):
    whole = World(Heads(3).double(), data())
    grown, loaded = World(Heads(2).double(), whole.loaders), World(Heads(3).double(), whole.loaders)
    grown.model.load_state_dict({k: v for k, v in whole.model.state_dict().items() if "heads.2" not in k})
    optimizer = make(name, whole, **settings)
    growing = make(name, grown, **settings)
    run(optimizer, whole, range(2)), run(growing, grown, range(2))
    state = saved(growing)
    grown.model.heads.append(nn.Linear(4, 3).double())
    grown.model.heads[2].load_state_dict(whole.model.heads[2].state_dict())
    loaded.model.load_state_dict(grown.model.state_dict())
    loading = make(name, loaded, **settings)
    loading.load_state_dict(state)
    expected = run(optimizer, whole, range(2, 3))
    for member, world in ((growing, grown), (loading, loaded)):
        torch.testing.assert_close(run(member, world, range(2, 3)), expected, rtol=rtol, atol=0)
        run(member, world, range(1))  # back to an old head, with the new one standing by


@every_method
def test_a_model_with_frozen_parameters_takes_its_old_state(name):
    """A process that starts again builds the model, freezes, and only then makes the optimizer."""
    world = single_head()
    optimizer = make(name, world)
    run(optimizer, world, range(1))
    world.model[0].requires_grad_(False)
    other = copied(world)
    resumed = make(name, other)
    resumed.load_state_dict(saved(optimizer))
    assert torch.equal(run(resumed, other, range(1, 3)), run(optimizer, world, range(1, 3)))


@pytest.mark.parametrize("name", [name for name in METHODS if name not in (*FREE_RATES, *REHEARSING)])
def test_the_first_tasks_optimizer_is_part_of_the_state(name):
    world = single_head()
    adam = torch.optim.Adam(world.model.parameters(), 0.01)
    optimizer = make(name, world, first_task=adam)
    next(live(optimizer, world))
    state, other = saved(optimizer), copied(world)
    resumed = make(name, other, first_task=torch.optim.Adam(other.model.parameters(), 0.5))
    resumed.load_state_dict(state)
    for here, member in ((world, optimizer), (other, resumed)):
        member.zero_grad()
        here.loss(here.loaders[0][1]).backward()
        member.step()
    assert torch.equal(flat(world.model), flat(other.model))
    with pytest.raises(ValueError, match=r"first_task is SGD, got Adam"):
        make(name, other).load_state_dict(state)


@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.Adam])
def test_a_head_may_be_added_while_the_first_tasks_optimizer_is_at_work(kind):
    """The moments go to the parameters that they belong to, by name."""
    grown, whole = World(Heads(1).double(), data()), World(Heads(2).double(), data())
    whole.model.heads[0].load_state_dict(grown.model.heads[0].state_dict())
    whole.model.trunk.load_state_dict(grown.model.trunk.state_dict())
    optimizer = make("FOPNG", grown, first_task=kind(grown.model.parameters(), 0.1))
    next(live(optimizer, grown))
    state = saved(optimizer)
    whole.model.load_state_dict(grown.model.state_dict(), strict=False)
    loaded = make("FOPNG", whole, first_task=kind(whole.model.parameters(), 0.1))
    loaded.load_state_dict(state)
    for world, member in ((grown, optimizer), (whole, loaded)):
        member.zero_grad()
        world.loss(grown.loaders[0][1]).backward()
        member.step()
    for name, value in grown.model.named_parameters():
        assert torch.equal(dict(whole.model.named_parameters())[name], value)
    assert [len(group["params"]) for group in state["fopng"]["first_task"]["state"]["param_groups"]] == [4]


@pytest.mark.parametrize("name", FREE_RATES)
def test_a_head_may_be_added_as_a_group_of_its_own(name):
    """As one is used to from torch; it takes part from the next task on, at its own rate."""
    world = World(Heads(1).double(), data())
    optimizer = make(name, world)
    run(optimizer, world, range(1))
    world.model.heads.append(nn.Linear(4, 3).double())
    optimizer.add_param_group({"params": world.model.heads[1].parameters(), "lr": 0.0})
    before = world.model.heads[1].weight.clone()
    run(optimizer, world, range(1, 2))
    assert torch.equal(world.model.heads[1].weight, before)
    optimizer.param_groups[1]["lr"] = 0.1
    run(optimizer, world, range(1, 2))
    assert not torch.equal(world.model.heads[1].weight, before)


@every_method
def test_nothing_grows_with_the_steps(name):
    world = single_head()
    optimizer = make(name, world, momentum=0.5, first_task="own")
    run(optimizer, world, range(1))
    sizes = []
    for epochs in (5, 95):
        optimizer.begin_task(1)
        for _ in range(epochs):
            optimizer.refresh(world.loaders[1])
            for batch in world.loaders[1]:
                optimizer.zero_grad()
                world.loss(batch).backward()
                optimizer.step()
        sizes.append((optimizer.diagnose().bytes, {k: t.shape for k, t in tensors(optimizer.state_dict()).items()}))
    assert optimizer.steps == 2 + 200
    assert sizes[0] == sizes[1]
