"""The weights that a task ends with: a mean over its steps, or part of the way back; when they come into the model."""

import pytest
import torch
from torch import nn

from methods.worlds import KRONECKER, Heads, flat, live, make, multi_head, run, single_head

pytestmark = pytest.mark.parametrize("name", KRONECKER)


def lived(optimizer, world, tasks, epochs=5):
    """The parameters after every step of the last task, before it ends."""
    path = []
    for task, _ in live(optimizer, world, tasks, epochs):
        if task == tasks[-1]:
            path.append(flat(world.model))
    return torch.stack(path)


def test_with_one_it_is_the_mean_over_all_steps(name):
    world = single_head()
    path = lived(make(name, world, averaging=1.0), world, range(2))
    torch.testing.assert_close(flat(world.model), path.mean(0))


def test_with_zero_it_is_the_last_step(name):
    world = single_head()
    optimizer = make(name, world)
    path = lived(optimizer, world, range(2))
    assert torch.equal(flat(world.model), path[-1])
    assert "mean" not in optimizer.method.vectors


@pytest.mark.parametrize("part", [0.1, 0.4])
def test_its_age_is_that_of_the_last_part_of_the_steps(name, part):
    """Parameters that walk along a line: how far behind the end they are put is half of that part of the way."""
    method, steps = make(name, single_head(), averaging=part).method, 2000
    for step in range(1, steps + 1):
        method.follow(torch.full((39,), float(step), dtype=torch.float64), torch.zeros(39, dtype=torch.float64))
    behind = 1 - method.vectors["mean"] / steps
    torch.testing.assert_close(behind, torch.full_like(behind, part / 2), rtol=0, atol=1e-3)


def test_what_is_kept_of_a_task_is_measured_where_it_ends(name):
    """As it is by a method whose first task another optimizer brought there."""
    world = single_head()
    first = make(name, world, averaging=0.5, generator=torch.Generator().manual_seed(3))
    run(first, world, range(1), epochs=3)
    again = make(name, world, generator=torch.Generator().manual_seed(3))
    again.begin_task(0)
    again.end_task(world.loaders[0])
    for kind in ("vectors", "matrices"):
        found, expected = getattr(first.method, kind), getattr(again.method, kind)
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


def test_heads_of_other_tasks_stay_where_they_are(name):
    world = multi_head()
    optimizer = make(name, world, averaging=0.5)
    run(optimizer, world, range(1))
    before = [parameter.detach().clone() for parameter in world.model.heads[0].parameters()]
    run(optimizer, world, range(1, 3))
    assert all(torch.equal(*pair) for pair in zip(world.model.heads[0].parameters(), before, strict=True))


def test_a_head_that_comes_in_the_middle_of_a_task_is_not_averaged_with_nothing(name):
    world = multi_head()
    world.model = Heads(1).double()
    optimizer = make(name, world, averaging=1.0)
    steps = live(optimizer, world, range(1), 2)
    next(steps)
    world.model.heads.append(nn.Linear(4, 3).double())
    new = flat(world.model.heads[1])
    path = [flat(world.model) for _ in steps]
    assert torch.equal(flat(world.model.heads[1]), new)
    torch.testing.assert_close(flat(world.model), torch.stack(path[1:]).mean(0))


def test_an_end_that_failed_can_be_tried_again(name):
    """The mean is in the model then, and stays what it was."""
    world = single_head()
    twin = world.twin()
    expected = run(make(name, twin, averaging=0.5, generator=torch.Generator().manual_seed(2)), twin, range(1))
    optimizer = make(name, world, averaging=0.5, generator=torch.Generator().manual_seed(2))
    steps = live(optimizer, world, range(1))
    for _ in world.loaders[0]:
        next(steps)
    with pytest.raises(RuntimeError):
        optimizer.end_task([(torch.randn(3, 7, dtype=torch.float64), torch.zeros(3, dtype=torch.int64))])
    optimizer.end_task(world.loaders[0])
    assert torch.equal(flat(world.model), expected)
    assert not optimizer.in_task


def test_numbers_that_are_not_finite_change_nothing(name):
    world = single_head()
    optimizer = make(name, world, averaging=0.5)
    next(live(optimizer, world, range(1)))
    mean = optimizer.method.vectors["mean"].clone()
    optimizer.zero_grad()
    (world.loss(world.loaders[0][0]) * float("nan")).backward()
    with pytest.raises(FloatingPointError):
        optimizer.step()
    assert torch.equal(optimizer.method.vectors["mean"], mean)


def test_merging_ends_part_of_the_way_back_from_the_second_task_on(name):
    world = single_head()
    optimizer = make(name, world, merging=0.3)
    path = lived(optimizer, world, range(1))
    assert torch.equal(flat(world.model), path[-1])
    start = flat(world.model)
    path = lived(optimizer, world, range(1, 2))
    torch.testing.assert_close(flat(world.model), 0.7 * path[-1] + 0.3 * start)
    assert not {"mean", "start"} & optimizer.method.vectors.keys()


def test_a_new_head_is_not_merged_with_what_it_began_with(name):
    world = multi_head()
    optimizer = make(name, world, merging=0.5)
    run(optimizer, world, range(1))
    trunk = flat(world.model.trunk)
    path = [(flat(world.model.trunk), flat(world.model.heads[1])) for _ in live(optimizer, world, range(1, 2))]
    assert torch.equal(flat(world.model.heads[1]), path[-1][1])
    torch.testing.assert_close(flat(world.model.trunk), (path[-1][0] + trunk) / 2)
