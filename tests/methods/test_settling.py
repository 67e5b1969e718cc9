"""The weights that a task ends with: a mean over its steps, or part of the way back; when they come into the model."""

import pytest
import torch
from torch import nn

from flat import flat as flat_vector
from flat import named
from fopng.core.tree import to_plain
from fopng.optim.weight_averaging import AveragingRunning
from methods.worlds import KRONECKER, Heads, flat, live, make, multi_head, run, single_head, tensors

pytestmark = pytest.mark.parametrize("name", KRONECKER)


def follows(optimizer) -> bool:
    """Whether a mean is kept, or where the task began."""
    running = optimizer.pipeline.running
    return running.mean is not None or running.start is not None


def lived(optimizer, world, tasks, epochs=5):
    """The parameters after every step of the last task, before it ends."""
    path = []
    for task, _ in live(optimizer, world, tasks, epochs):
        if task == tasks[-1]:
            path.append(flat(world.model))
    return torch.stack(path)


def test_with_one_it_is_the_mean_over_all_steps(name):
    world = single_head()
    path = lived(make(name, world, averaging=1.0, merging=0.0), world, range(2))
    torch.testing.assert_close(flat(world.model), path.mean(0))


def test_with_zero_it_is_the_last_step(name):
    world = single_head()
    optimizer = make(name, world, merging=0.0)
    path = lived(optimizer, world, range(2))
    assert torch.equal(flat(world.model), path[-1])
    assert not follows(optimizer)


@pytest.mark.parametrize("part", [0.1, 0.4])
def test_its_age_is_that_of_the_last_part_of_the_steps(name, part):
    """Parameters that walk along a line: how far behind the end they are put is half of that part of the way."""
    optimizer, steps, running = make(name, single_head(), averaging=part), 2000, AveragingRunning()
    method, shapes = optimizer.method, optimizer.layout.shapes
    for step in range(steps + 1):
        running = method.follow(running, named(torch.full((39,), float(step), dtype=torch.float64), shapes))
    behind = 1 - flat_vector(running.mean, shapes) / steps
    torch.testing.assert_close(behind, torch.full_like(behind, part / 2), rtol=0, atol=1e-3)


def test_what_is_kept_of_a_task_is_measured_where_it_ends(name):
    """As it is by a method whose first task another optimizer brought there."""
    world = single_head()
    first = make(name, world, averaging=0.5, generator=torch.Generator().manual_seed(3))
    run(first, world, range(1), epochs=3)
    again = make(name, world, generator=torch.Generator().manual_seed(3))
    again.begin_task(0)
    again.end_task(world.loaders[0])
    if name == "KroneckerFOPNG":
        counted = [(own.pipeline.state.steps, own.pipeline.state.stepped) for own in (first, again)]
        # the second knows nothing of its steps
        assert counted == [(6, 1), (0, 0)]
    assert first.pipeline.state.tasks == again.pipeline.state.tasks == 1
    found, expected = (tensors(to_plain([own.pipeline.state, own.pipeline.running])) for own in (first, again))
    assert found.keys() == expected.keys()
    for key, value in expected.items():
        torch.testing.assert_close(found[key], value)


@pytest.mark.parametrize("at", [(0, 1), (1, 0)])
def test_a_state_goes_on_with_the_mean(name, at):
    world = single_head()
    other = world.twin()
    whole = run(make(name, world, averaging=0.7, generator=torch.Generator().manual_seed(1)), world)
    first = make(name, other, averaging=0.7, generator=torch.Generator().manual_seed(1))
    for step in live(first, other):
        if step == at:
            break
    second = make(name, other, averaging=0.7)
    second.load_state_dict(first.state_dict())
    task, done = at
    for batch in other.loaders[task][done + 1 :]:
        second.zero_grad()
        other.loss(batch).backward()
        second.step()
    second.end_task(other.loaders[task])
    run(second, other, range(task + 1, 3))
    assert torch.equal(flat(other.model), whole)


@pytest.mark.parametrize("merging", [0.0, 0.5])
def test_a_state_with_a_mean_goes_on_without_one(name, merging):
    """In the second task, where merging would act; a start that the state lacks is not made up."""
    world = single_head()
    first = make(name, world, averaging=0.7, merging=0.0)
    run(first, world, range(1))
    steps = live(first, world, range(1, 2), 2)
    for _ in range(3):
        next(steps)
    assert first.pipeline.running.mean is not None
    second = make(name, world, merging=merging)
    second.load_state_dict(first.state_dict())
    second.zero_grad()
    world.loss(world.loaders[1][1]).backward()
    second.step()
    last = flat(world.model)
    second.end_task(world.loaders[1])
    assert torch.equal(flat(world.model), last)
    assert not follows(second)


def test_without_either_nothing_is_followed(name):
    world = single_head()
    optimizer = make(name, world, merging=0.0)
    steps = live(optimizer, world, range(1))
    for _ in range(2):
        next(steps)
    assert optimizer.pipeline.running.steps is None


def test_merging_alone_looks_at_the_parameters_where_a_task_begins(name):
    """Steps after the first leave what is kept as it is."""
    world = single_head()
    optimizer = make(name, world, merging=0.3)
    for task in range(2):
        start = flat(world.model)
        kept = [optimizer.pipeline.running for _ in live(optimizer, world, range(task, task + 1))]
        assert len(kept) == len(world.loaders[task])
        assert all(running is kept[0] for running in kept)
        assert torch.equal(flat_vector(kept[0].start, optimizer.layout.shapes), start)


def test_a_task_without_a_step_ends_where_it_began(name):
    world = single_head()
    optimizer = make(name, world, averaging=0.5, merging=0.5)
    run(optimizer, world, range(1))
    before = flat(world.model)
    optimizer.begin_task(1)
    optimizer.end_task(world.loaders[1])
    assert torch.equal(flat(world.model), before)


def test_heads_of_other_tasks_stay_where_they_are(name):
    world = multi_head()
    optimizer = make(name, world, averaging=0.5)
    run(optimizer, world, range(1))
    before = [parameter.detach().clone() for parameter in world.model.heads[0].parameters()]
    run(optimizer, world, range(1, 3))
    assert all(torch.equal(*pair) for pair in zip(world.model.heads[0].parameters(), before, strict=True))


def test_a_head_that_comes_in_the_middle_of_a_task_is_left_alone(name):
    """And the others end with the mean over all their steps."""
    world = multi_head()
    world.model = Heads(1).double()
    optimizer = make(name, world, averaging=1.0, merging=0.5)
    steps = live(optimizer, world, range(1), 2)
    next(steps)
    path = [flat(world.model.trunk)]
    world.model.heads.append(nn.Linear(4, 3).double())
    new = flat(world.model.heads[1])
    path += [flat(world.model.trunk) for _ in steps]
    assert torch.equal(flat(world.model.heads[1]), new)
    torch.testing.assert_close(flat(world.model.trunk), torch.stack(path).mean(0))


def test_a_head_that_only_the_end_notices(name):
    world = multi_head()
    world.model = Heads(1).double()
    optimizer = make(name, world, averaging=1.0)
    path = []
    for number, _ in enumerate(live(optimizer, world, range(1))):
        path.append(flat(world.model.trunk))
        if number == 1:
            world.model.heads.append(nn.Linear(4, 3).double())
            new = flat(world.model.heads[1])
    assert torch.equal(flat(world.model.heads[1]), new)
    torch.testing.assert_close(flat(world.model.trunk), torch.stack(path).mean(0))


def test_a_frozen_bias_stays_where_it_is(name):
    world = single_head()
    optimizer = make(name, world, averaging=0.5, merging=0.3)
    run(optimizer, world, range(1))
    world.model[0].bias.requires_grad_(False)
    bias, weight = world.model[0].bias.clone(), world.model[0].weight.detach().clone()
    run(optimizer, world, range(1, 2))
    assert torch.equal(world.model[0].bias, bias)
    assert not torch.equal(world.model[0].weight, weight)


@pytest.mark.parametrize("averaging", [0.0, 1.0])
def test_a_layer_that_is_frozen_in_the_middle_of_a_task_stays_where_it_was_then(name, averaging):
    world = single_head()
    optimizer = make(name, world, averaging=averaging, merging=0.3)
    for task in range(2):
        steps = live(optimizer, world, range(task, task + 1), 2)
        next(steps)
        next(steps)
        world.model[0].requires_grad_(False)
        frozen, free = flat(world.model[0]), flat(world.model[2])
        assert [*steps]
        assert torch.equal(flat(world.model[0]), frozen)
        assert not torch.equal(flat(world.model[2]), free)
        world.model[0].requires_grad_(True)


def test_weights_that_were_put_in_place_count(name):
    """Early stopping: without averaging a task ends with them, or with part of the way to them."""
    world = single_head()
    optimizer = make(name, world, merging=0.25)
    for task in range(2):
        start = flat(world.model)
        steps = live(optimizer, world, range(task, task + 1), 2)
        next(steps)
        best = flat(world.model)
        for _ in range(3):
            next(steps)
        nn.utils.vector_to_parameters(best.clone(), world.model.parameters())
        optimizer.end_task(world.loaders[task])
        torch.testing.assert_close(flat(world.model), best if task == 0 else 0.75 * best + 0.25 * start)


def test_rows_that_come_in_a_first_task_that_was_not_begun(name):
    """As without averaging: the matrices of old tasks, of which there are none, are what cannot grow."""
    world = single_head()
    optimizer = make(name, world, averaging=0.5)
    world.loss(world.loaders[0][0]).backward()
    optimizer.step()
    old = world.model[2]
    world.model[2] = nn.Linear(4, 5).double()
    with torch.no_grad():
        world.model[2].weight[:3], world.model[2].bias[:3] = old.weight, old.bias
    optimizer.adopt_parameters()
    run(optimizer, world, range(1))
    assert flat(world.model).isfinite().all()


def test_a_step_that_a_device_drops_leaves_the_way_right(name, monkeypatch):
    """A first step whose gradient is not finite, on a device that is not waited for: nothing moves, and the task begins there."""
    world = single_head()
    optimizer = make(name, world, merging=0.5)
    run(optimizer, world, range(1))
    start = flat(world.model)
    optimizer.begin_task(1)
    for parameter in world.model.parameters():
        parameter.grad = torch.full_like(parameter, torch.nan)
    with monkeypatch.context() as device:
        device.setattr("fopng.optim.optimizer.check_finite", lambda g: g.finite())
        optimizer.step()
    assert torch.equal(flat(world.model), start)
    with pytest.raises(FloatingPointError, match="NaN"):
        optimizer.diagnose()
    optimizer.zero_grad()
    world.loss(world.loaders[1][0]).backward()
    optimizer.step()
    last = flat(world.model)
    optimizer.end_task(world.loaders[1])
    torch.testing.assert_close(flat(world.model), (start + last) / 2)


def test_an_end_that_failed_can_be_tried_again(name):
    """It has changed nothing, and the mean comes into the model once."""
    world = single_head()
    twin = world.twin()
    expected = run(make(name, twin, averaging=0.5, generator=torch.Generator().manual_seed(2)), twin, range(1))
    optimizer = make(name, world, averaging=0.5, generator=torch.Generator().manual_seed(2))
    steps = live(optimizer, world, range(1))
    for _ in world.loaders[0]:
        next(steps)
    last = flat(world.model)
    with pytest.raises(RuntimeError):
        optimizer.end_task([(torch.randn(3, 7, dtype=torch.float64), torch.zeros(3, dtype=torch.int64))])
    assert torch.equal(flat(world.model), last)
    optimizer.end_task(world.loaders[0])
    assert torch.equal(flat(world.model), expected)
    assert not optimizer.in_task


def test_numbers_that_are_not_finite_change_nothing(name):
    world = single_head()
    optimizer = make(name, world, averaging=0.5)
    steps = live(optimizer, world, range(1))
    for _ in range(2):
        next(steps)
    mean = flat_vector(optimizer.pipeline.running.mean, optimizer.layout.shapes)
    optimizer.zero_grad()
    (world.loss(world.loaders[0][0]) * float("nan")).backward()
    with pytest.raises(FloatingPointError):
        optimizer.step()
    assert torch.equal(flat_vector(optimizer.pipeline.running.mean, optimizer.layout.shapes), mean)


def test_merging_ends_part_of_the_way_back_from_the_second_task_on(name):
    world = single_head()
    optimizer = make(name, world, merging=0.3)
    path = lived(optimizer, world, range(1))
    assert torch.equal(flat(world.model), path[-1])
    start = flat(world.model)
    path = lived(optimizer, world, range(1, 2))
    torch.testing.assert_close(flat(world.model), 0.7 * path[-1] + 0.3 * start)
    assert not follows(optimizer)


def test_a_new_head_is_not_merged_with_what_it_began_with(name):
    world = multi_head()
    optimizer = make(name, world, merging=0.5)
    run(optimizer, world, range(1))
    trunk = flat(world.model.trunk)
    path = [(flat(world.model.trunk), flat(world.model.heads[1])) for _ in live(optimizer, world, range(1, 2))]
    assert torch.equal(flat(world.model.heads[1]), path[-1][1])
    torch.testing.assert_close(flat(world.model.trunk), (path[-1][0] + trunk) / 2)


@pytest.mark.parametrize("noticed", ["by a step", "by the end"])
def test_a_head_that_comes_in_the_middle_of_a_later_task_is_not_merged(name, noticed):
    """Merging alone: where the task began is known of all the rest, and nothing is made up of what came later."""
    world = multi_head()
    world.model = Heads(2).double()
    optimizer = make(name, world, merging=0.5)
    run(optimizer, world, range(1))
    start, path = flat(world.model.trunk), []
    for number, _ in enumerate(live(optimizer, world, range(1, 2))):
        path.append(flat(world.model.trunk))
        if number == {"by a step": 0, "by the end": len(world.loaders[1]) - 1}[noticed]:
            world.model.heads.append(nn.Linear(4, 3).double())
            new = flat(world.model.heads[2])
    assert torch.equal(flat(world.model.heads[2]), new)
    torch.testing.assert_close(flat(world.model.trunk), (start + path[-1]) / 2)
