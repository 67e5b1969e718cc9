"""Whatever fails inside a call, nothing has changed: the same call again does what it would have done."""

import copy
import inspect
import sys
from collections import Counter

import pytest
import torch

from methods.worlds import METHODS, flat, kept, make, single_head

PARTS = ("fopng.core.", "fopng.curvature.", "fopng.gradients.", "fopng.memory.", "fopng.optim.")
"""Functions of these are made to fail."""

AFTER = ("Pipeline.measure", "warn_if_exceeded")
"""What looks at the model once a call is done."""

PLACES = 12
"""As many of a call's steps are tried, evenly spread."""


class Accident(Exception):
    """Something inside a call has failed."""


def watched(call, fail_at=None):
    """Do a call; say which functions it goes through, or raise as the one of a number begins."""
    seen = Counter()

    def look(frame, event, argument):
        # a generator is entered again when it is thrown away
        ours = (
            event == "call"
            and not frame.f_code.co_flags & inspect.CO_GENERATOR
            and frame.f_code.co_qualname not in AFTER
        )
        if ours and frame.f_globals.get("__name__", "").startswith(PARTS):
            seen["calls"] += 1
            if seen["calls"] == fail_at:
                sys.setprofile(None)
                raise Accident(frame.f_code.co_qualname)

    sys.setprofile(look)
    try:
        call()
    finally:
        sys.setprofile(None)
    return seen["calls"]


def failing(call, optimizer, world, place):
    """What failed of a call; None where it had fewer steps than the first time, because something is worked out once."""
    try:
        watched(lambda: call(optimizer, world), fail_at=place)
    except Accident as accident:
        return str(accident)
    return None


def everything(optimizer, model):
    """What a call may change, to the bit."""
    rates = [group["lr"] for group in optimizer.param_groups]
    counters = [optimizer.tasks_done, optimizer.steps, optimizer.in_task, *rates]
    return {**kept(optimizer), "model": flat(model), "counters": torch.tensor(counters, dtype=torch.float64)}


def same(one, other):
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def prepared(name, **settings):
    """In the middle of a second task, where each call has the most to do."""
    torch.manual_seed(0)
    world = single_head()
    optimizer = make(name, world, first_task="own", **settings)
    for task in range(2):
        optimizer.begin_task(task)
        optimizer.refresh(world.loaders[task])
        for batch in world.loaders[task]:
            optimizer.zero_grad()
            world.loss(batch).backward()
            optimizer.step()
        if task == 0:
            optimizer.end_task(world.loaders[0])
    optimizer.zero_grad()
    world.loss(world.loaders[1][0]).backward()
    return optimizer, world


CALLS = {
    "end_task": lambda optimizer, world: optimizer.end_task(world.loaders[1]),
    "refresh": lambda optimizer, world: optimizer.refresh(world.loaders[1]),
    "step": lambda optimizer, world: optimizer.step(),
    "load_state_dict": lambda optimizer, world: optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict())),
}

FULL = {"OGD": {"max_directions": 6, "when_full": "compress"}, "FOPNG": {"max_directions": 6, "when_full": "compress"}}


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("name", METHODS)
def test_a_call_that_fails_anywhere_changes_nothing_and_can_be_made_again(name, call):
    settings = FULL.get(name, {})
    wanted, world = prepared(name, **settings)
    steps = watched(lambda: CALLS[call](wanted, world))
    expected = everything(wanted, world.model)
    for place in sorted({1 + k * (steps - 1) // PLACES for k in range(PLACES + 1)}):
        optimizer, world = prepared(name, **settings)
        before = everything(optimizer, world.model)
        if accident := failing(CALLS[call], optimizer, world, place):
            assert same(everything(optimizer, world.model), before), f"{accident} of {place}"
            CALLS[call](optimizer, world)
        assert same(everything(optimizer, world.model), expected), f"after {place}"
