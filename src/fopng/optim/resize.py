"""A model whose parameters were replaced by larger ones, followed by a method and by the groups of an optimizer."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import final

import torch
from torch import nn

from fopng.core.layout import ParamLayout
from fopng.memory.gradients import GradientMemory
from fopng.memory.resize import check_grown, grow_memory, grow_vector
from fopng.optim.method import Method


@final
@dataclass(frozen=True)
class Replaced:
    """A parameter in whose place the model now has another."""

    name: str
    old: nn.Parameter
    new: nn.Parameter


def grow_method(method: Method, layout: ParamLayout) -> None:
    """Make a method's state speak of parameters with more rows."""
    old = method.layout
    check_grown(old, layout)
    if old == layout:
        return
    method.forget_task()
    if method.matrices and not method.matrices_of_inputs:
        grown = [name for name in old.names if old.shapes[name] != layout.shapes[name]]
        other = ", or use a diagonal metric" if getattr(method, "metric", "diagonal") != "diagonal" else ""
        raise ValueError(
            f"Expected parameters that keep their shape, got more rows in {grown}: what is kept of old tasks are matrices over "
            f"rows. Give the model its final size from the start{other}."
        )
    method.vectors = {name: grow_vector(value, old, layout) for name, value in method.vectors.items()}
    if method.memory is not None:
        if not isinstance(method.memory, GradientMemory):
            raise ValueError(
                "Expected a memory in one process, got one that is spread over several, which cannot follow parameters that grow. "
                "Give the model its final size from the start."
            )
        method.memory = grow_memory(method.memory, layout)
    method.layout = layout
    method.forget_derived()


def replaced_parameters(
    names: Sequence[str], known: Sequence[nn.Parameter], named: Mapping[str, nn.Parameter]
) -> list[Replaced]:
    """The known parameters in whose places the model now has others.

    Args:
        names: of the parameters that an optimizer knows.
        known: those parameters.
        named: what the model has now.
    """
    pairs = zip(names, known, strict=True)
    return [Replaced(name, p, named[name]) for name, p in pairs if name in named and named[name] is not p]


def refuse_replaced(replaced: Sequence[Replaced]) -> None:
    """Raise where parameters were replaced and nobody said what that means."""
    if replaced:
        pairs = ((each.name, tuple(each.new.shape), tuple(each.old.shape)) for each in replaced)
        other = next((f" ({name!r} of shape {new} instead of {old})" for name, new, old in pairs if new != old), "")
        raise ValueError(
            f"Expected the model's own parameters, got new tensors for {[each.name for each in replaced]}{other}. Call "
            "adopt_parameters if they go on with what the old ones learnt, or make a new optimizer."
        )


def put_in_place(optimizer: torch.optim.Optimizer, replaced: Sequence[Replaced]) -> None:
    """Put the new parameters in the places of the old; what a torch optimizer has accumulated about these is dropped."""
    new = {id(each.old): each.new for each in replaced}
    for each in replaced:
        optimizer.state.pop(each.old, None)
    for group in optimizer.param_groups:
        group["params"] = [new.get(id(parameter), parameter) for parameter in group["params"]]
