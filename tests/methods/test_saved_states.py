"""States that were saved: of another version they are refused with both named, and a refusal changes nothing."""

import copy

import pytest
import torch

import fopng
from methods.worlds import METHODS, kept, make, run, single_head


def state_of(name="EWC"):
    world = single_head()
    optimizer = make(name, world)
    run(optimizer, world, range(2))
    return optimizer, optimizer.state_dict()


def test_a_state_of_another_version_is_refused_with_both_named():
    optimizer, state = state_of()
    state["fopng"]["format"] = 7
    with pytest.raises(ValueError, match="Expected a state of format 1, got 7. Load it with the version that wrote it"):
        optimizer.load_state_dict(state)


def test_a_state_from_before_there_were_versions_is_read():
    optimizer, state = state_of()
    del state["fopng"]["format"]
    fresh = make("EWC", single_head())
    fresh.load_state_dict(state)
    assert fresh.tasks_done == optimizer.tasks_done == 2


DAMAGES = {
    "a member is gone": lambda state: state["fopng"].pop("steps"),
    "no groups": lambda state: state.pop("param_groups"),
    "a rate below zero": lambda state: state["param_groups"][0].update(lr=-1.0),
    "steps in words": lambda state: state["fopng"].update(steps="many"),
    "a generator of another kind": lambda state: state["fopng"].update(generator=torch.zeros(3)),
    "a state of nothing": lambda state: state["fopng"].update(state={"node": "State"}),
    "a state that nobody knows": lambda state: state["fopng"].update(state={"node": "Nothing"}),
    "a vector of another shape": lambda state: spoil_vector(state["fopng"]["state"]),
}


def spoil_vector(tree):
    if isinstance(tree, dict):
        if tree.get("node") == "Vector":
            tree["parts"] = {name: torch.zeros(99) for name in tree["parts"]}
        for own in tree.values():
            spoil_vector(own)
    for own in tree if isinstance(tree, list) else ():
        spoil_vector(own)


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_state_is_refused_and_nothing_has_changed(damage):
    _, state = state_of()
    damaged = copy.deepcopy(state)
    DAMAGES[damage](damaged)
    optimizer = make("EWC", world := single_head())
    run(optimizer, world, range(1))
    before, counters = kept(optimizer), (optimizer.tasks_done, optimizer.steps, optimizer.param_groups[0]["lr"])
    with pytest.raises(ValueError, match="Expected"):
        optimizer.load_state_dict(damaged)
    assert all(torch.equal(tensor, before[name]) for name, tensor in kept(optimizer).items())
    assert (optimizer.tasks_done, optimizer.steps, optimizer.param_groups[0]["lr"]) == counters
    optimizer.load_state_dict(state)
    assert optimizer.tasks_done == 2


@pytest.mark.parametrize("value", [True, "1", [1], 10**30, torch.nn])
def test_a_number_is_a_number(value):
    with pytest.raises((TypeError, ValueError), match="Expected strength"):
        fopng.EWC(torch.nn.Linear(2, 2), 0.1, strength=value)


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("batches", [3, None, "data", iter([])])
def test_batches_are_something_to_walk(name, batches):
    optimizer = METHODS[name](torch.nn.Linear(2, 2), 0.1)
    for call in (optimizer.refresh, optimizer.end_task):
        with pytest.raises(TypeError, match="Expected batches that can be walked"):
            call(batches)


def test_learning_without_forgetting_keeps_what_stands_for_old_inputs():
    world = single_head()
    optimizer = make("LwF", world, rehearse=1.0)
    run(optimizer, world)
    assert len(optimizer.pipeline.state.probes) == len(world.loaders)
