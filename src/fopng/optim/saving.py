"""The state of a drop-in optimizer as it is saved, and what a state must be to be taken over."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any, final

import torch
from torch import Tensor

from fopng.core.layout import ParamLayout
from fopng.core.tree import children, from_plain, to_plain
from fopng.core.typed import fits
from fopng.core.vector import Vector
from fopng.optim.arguments import plain_task
from fopng.optim.method import Running, State
from fopng.optim.placement import whole
from fopng.optim.settings import AT_LEAST_0, require

if TYPE_CHECKING:
    from fopng.optim.optimizer import ContinualOptimizer

FORMAT = 1
"""Of a state. Format 0 is the same, and had no number."""


def saved(optimizer: "ContinualOptimizer") -> dict[str, Any]:
    """Everything that is not in the groups: what `torch.load(weights_only=True)` knows."""
    pipeline, first = optimizer.pipeline, optimizer._first_at_work
    trained = optimizer._trained
    return {
        "format": FORMAT,
        "method": type(optimizer).__name__,
        "variant": optimizer.method.variant,
        "layout": {name: list(shape) for name, shape in optimizer.layout.shapes.items()},
        "state": to_plain(whole(pipeline.state, optimizer.communicator, trained.some.device)),
        "running": to_plain(pipeline.running),
        "kind": trained.blank_before.cpu(),
        "tasks_done": optimizer.tasks_done,
        "steps": optimizer.steps,
        "open": optimizer._open,
        "task": optimizer._task,
        "generator": optimizer.generator.get_state(),
        "first_task": None if first is None else first.state_dict(trained.names_by_id()),
    }


@final
@dataclass(frozen=True)
class Saved:
    """A state that was read and found to be one: every member has its type, and the tensors of parameters their shapes."""

    layout: ParamLayout
    groups: list[dict[str, Any]]
    state: State
    running: Running
    kind: Tensor
    counters: Mapping[str, int]
    is_open: bool
    task: int | str | None
    generator: Tensor
    first_task: dict[str, Any] | None


def read(optimizer: "ContinualOptimizer", state_dict: Any) -> Saved:
    """What `state_dict` gave; `ValueError` for a state of another version, method or settings, and for a damaged one."""
    own = _own(optimizer, state_dict)
    try:
        return _read(optimizer, own, state_dict["param_groups"])
    except (KeyError, TypeError, AttributeError, IndexError, RuntimeError, OverflowError, ValueError) as error:
        raise ValueError(
            f"Expected the state that state_dict() gave, got one that was changed: {_sentence(error)} Load another copy."
        ) from error


def _own(optimizer: "ContinualOptimizer", state_dict: Any) -> dict[str, Any]:
    name, variant = type(optimizer).__name__, optimizer.method.variant
    own = state_dict.get("fopng") if isinstance(state_dict, Mapping) else None
    if not isinstance(own, dict):
        raise ValueError(f"Expected the state of a {name}, got one of a plain torch optimizer.")
    version = own.get("format", 0)
    if not isinstance(version, int) or version not in (0, FORMAT):
        raise ValueError(
            f"Expected a state of format {FORMAT}, got {version!r}. Load it with the version that wrote it."
        )
    for expected, got, words in (
        (name, own.get("method"), "the state of a {}"),
        (variant, own.get("variant"), "a state with {}"),
    ):
        if not isinstance(got, str) or got != expected:
            raise ValueError(f"Expected {words.format(expected)}, got one {words.format(got).partition('state ')[2]}.")
    return own


def _read(optimizer: "ContinualOptimizer", own: dict[str, Any], groups: Any) -> Saved:
    layout = ParamLayout({str(name): torch.Size(shape) for name, shape in own["layout"].items()})
    found = Saved(
        layout=layout,
        groups=[_group(each) for each in groups],
        state=from_plain(own["state"]),
        running=from_plain(own["running"]),
        kind=own["kind"],
        counters={name: own[name] for name in ("tasks_done", "steps")},
        is_open=own["open"],
        task=plain_task(own["task"]),
        generator=own["generator"].cpu(),
        first_task=own["first_task"],
    )
    method = optimizer.method
    require(type(found.state) is method.state_type, f"its state is a {type(found.state).__name__}.")
    require(type(found.running) is method.running_type, f"its running state is a {type(found.running).__name__}.")
    require(isinstance(found.kind, Tensor) and found.kind.is_floating_point(), "its kind is no tensor of numbers.")
    require(all(fits(each, int) and each >= 0 for each in found.counters.values()), "it counts steps below zero.")
    require(isinstance(found.is_open, bool), "it is neither open nor closed.")
    require(found.first_task is None or isinstance(found.first_task, dict), "its first_task is no state.")
    torch.Generator().set_state(found.generator)
    _check_shapes((found.state, found.running), layout.shapes)
    return found


def _group(group: Any) -> dict[str, Any]:
    AT_LEAST_0.check("lr", group["lr"])
    return {name: value for name, value in group.items() if name != "params"}


def _check_shapes(tree: Any, shapes: Mapping[str, torch.Size]) -> None:
    """Raise where a vector's part does not go with its parameter."""
    if isinstance(tree, Vector):
        for name, part in tree.parts.items():
            known = shapes.get(name)
            own = part.shape[tree.lead :]
            # what is kept a row of a parameter has a one in place of its columns
            fitting = known is None or own == known or (len(own) == len(known) and prod(own) == prod(known[:1]))
            require(fitting, f"{name!r} has the shape {tuple(part.shape)}, its parameter {tuple(known or ())}.")
    for child in children(tree) if not isinstance(tree, Tensor) else ():
        _check_shapes(child, shapes)


def _sentence(error: Exception) -> str:
    words = f"no {error}." if isinstance(error, KeyError) else str(error).strip().partition("\n")[0]
    return words if words.endswith(".") else f"{words}."
