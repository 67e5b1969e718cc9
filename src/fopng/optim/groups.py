"""Groups of parameters, as torch optimizers have them."""

from collections.abc import Iterator, Mapping, Sequence
from operator import itemgetter
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from fopng.core.layout import wide_dtype
from fopng.core.vector import Vector

Groups: TypeAlias = Sequence[Mapping[str, Any]]
"""Parameters with a learning rate of their own: `[{"params": ..., "lr": ...}]`."""


def make_groups(groups: Groups | None, parameters: Sequence[nn.Parameter]) -> list[dict[str, Any]]:
    """The groups that were asked for, and one with all other parameters.

    Args:
        groups: what was asked for.
        parameters: all that are trained.
    """
    if groups is not None and not isinstance(groups, Sequence | Iterator):
        raise TypeError(f"Expected groups such as [{{'params': ..., 'lr': ...}}], got {groups!r}.")
    asked = [] if groups is None else list(groups)
    if not all(isinstance(group, Mapping) and "params" in group for group in asked):
        kinds = sorted({type(group).__name__ for group in asked})
        raise TypeError(
            f"Expected groups such as [{{'params': ..., 'lr': ...}}], got {' and '.join(kinds)} without 'params'."
        )
    listed = [(group, group["params"]) for group in asked]
    made = [{**group, "params": [own] if isinstance(own, Tensor) else list(own)} for group, own in listed]
    taken = {id(p) for group in made for p in group["params"]}
    if not taken <= {id(p) for p in parameters}:
        raise ValueError("Expected groups of the model's trainable parameters, got others. Take them from the model.")
    rest = [p for p in parameters if id(p) not in taken]
    return [{"params": rest}, *made] if rest else made


def of_model(params: Any, model: nn.Module) -> Any:
    """These parameters, given as to any torch optimizer (it refuses a set), if they are a model's own."""
    listed = params if isinstance(params, set) else [params] if isinstance(params, Tensor) else list(params)
    own = {id(parameter) for parameter in model.parameters()}
    if not all(id(each[1] if isinstance(each, tuple) else each) in own for each in listed):
        raise ValueError(
            "Expected parameters of the model, got others, which would not be trained. Make them part of the model first, or give "
            "them an optimizer of their own."
        )
    return listed


GROUP_KEYS = ("params", "lr", "initial_lr", "name", "param_names")
"""What a group may say. `initial_lr` is a scheduler's."""


def check_group(group: Mapping[str, Any], owner: str) -> None:
    """Raise for what a group asks for and nobody would heed, such as a weight decay.

    Args:
        group: the parameters and what they ask for.
        owner: the name of the optimizer.
    """
    unknown = sorted(set(group) - set(GROUP_KEYS))
    if unknown:
        raise ValueError(
            f"Expected groups of {owner} with params and lr alone, got {', '.join(unknown)}, which it would ignore. Settings such "
            f"as momentum are arguments of {owner} and hold for all parameters; it has no weight decay: add that to the loss."
        )


def rate_of(groups: Groups, parameters: Mapping[str, nn.Parameter], one_rate: bool, owner: str) -> float | Vector:
    """The learning rate of some groups: one for all, or one for each parameter where they differ.

    Args:
        groups: the parameters, each in one of them.
        parameters: by name.
        one_rate: whether one rate must hold for all.
        owner: the name of the optimizer.
    """
    rates = set(map(float, map(itemgetter("lr"), groups)))
    if len(rates) == 1:
        return rates.pop()
    if one_rate:
        raise ValueError(
            f"Expected one learning rate, got {sorted(rates)}: the step of {owner} is a direction of its own, "
            "which different rates would bend. Use one learning rate, or SGD, Adam or EWC."
        )
    of = {id(p): float(group["lr"]) for group in groups for p in group["params"]}
    return Vector(
        {
            name: torch.tensor(of[id(p)], dtype=torch.float64).to(p.device, wide_dtype([p]))
            for name, p in parameters.items()
        }
    )
