"""A model whose parameters were replaced by larger ones, followed by a method and by the groups of an optimizer."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar, final

import torch
from torch import nn
from torch.nn.functional import pad

from fopng.core.layout import ParamLayout
from fopng.core.tree import children, map_children
from fopng.core.vector import Vector
from fopng.curvature.fishers import FullFisher, LowRankFisher
from fopng.curvature.moments import LayerMoments
from fopng.memory.gradients import GradientMemory
from fopng.optim.pipeline import Pipeline

T = TypeVar("T")

Shapes = Mapping[str, torch.Size]


@final
@dataclass(frozen=True)
class Replaced:
    """A parameter in whose place the model now has another."""

    name: str
    old: nn.Parameter
    new: nn.Parameter


def resize_state(pipeline: Pipeline, old: ParamLayout, new: ParamLayout) -> None:
    """Make a method's state speak of parameters with more rows: what is known of the old rows stays, the new ones are zero."""
    check_grown(old, new)
    if old == new:
        return
    grown = [name for name in old.names if old.shapes[name] != new.shapes[name]]
    running = pipeline.running
    if any(isinstance(own, (LayerMoments, FullFisher, LowRankFisher)) for own in nodes_in((pipeline.state, running))):
        other = ", or use a diagonal metric" if getattr(pipeline.method, "metric", "diagonal") != "diagonal" else ""
        raise ValueError(
            f"Expected parameters that keep their shape, got more rows in {grown}: what is kept of old tasks are matrices over "
            f"rows. Give the model its final size from the start{other}."
        )
    pipeline.state, pipeline.running = resized((pipeline.state, running), new.shapes)
    pipeline.forget_prepared()


def check_grown(old: ParamLayout, new: ParamLayout) -> None:
    """Raise unless every parameter of `old` has its shape in `new`, or more rows of it."""
    for name, shape in old.shapes.items():
        found = new.shapes.get(name)
        if found is None or found[1:] != shape[1:] or found[:1] < shape[:1]:
            given = "none" if found is None else tuple(found)
            raise ValueError(
                f"Expected {name!r} of shape {tuple(shape)}, or with more rows, got {given}. Make a new optimizer."
            )


def nodes_in(tree: Any) -> list[Any]:
    """A tree and all trees in it."""
    return [tree, *(inner for own in children(tree) for inner in nodes_in(own))]


def resized(tree: T, shapes: Shapes) -> T:
    """The same tree for parameters with more rows."""
    if isinstance(tree, Vector):
        parts = {name: with_rows(part, shapes[name]) for name, part in tree.parts.items()}
        return Vector(parts, tree.lead)  # type: ignore[return-value]
    if isinstance(tree, GradientMemory):
        return tree.resized(shapes)  # type: ignore[return-value]
    return map_children(lambda own: resized(own, shapes), tree)


def with_rows(part: torch.Tensor, shape: torch.Size) -> torch.Tensor:
    """A tensor `[..., *smaller]` with zeros for the rows that are missing to `[..., *shape]`."""
    if not shape:
        return part
    missing = shape[0] - part.shape[part.dim() - len(shape)]
    return pad(part, (0, 0) * (len(shape) - 1) + (0, missing)) if missing else part


def replaced_parameters(known: Mapping[str, nn.Parameter], named: Mapping[str, nn.Parameter]) -> list[Replaced]:
    """The known parameters in whose places the model now has others.

    Args:
        known: those that an optimizer knows, by name.
        named: what the model has now.
    """
    return [Replaced(name, p, named[name]) for name, p in known.items() if name in named and named[name] is not p]


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
