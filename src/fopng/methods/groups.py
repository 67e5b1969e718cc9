"""Groups of parameters, as torch optimizers have them."""

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from torch import Tensor, nn

Groups: TypeAlias = Sequence[Mapping[str, Any]]
"""Parameters with a learning rate of their own: `[{"params": ..., "lr": ...}]`."""


def make_groups(groups: Groups | None, parameters: Sequence[nn.Parameter]) -> list[dict[str, Any]]:
    """The groups that were asked for, and one with all other parameters.

    Args:
        groups: what was asked for.
        parameters: all that are trained.
    """
    listed = [(group, group["params"]) for group in groups or []]
    made = [{**group, "params": [own] if isinstance(own, Tensor) else list(own)} for group, own in listed]
    taken = {id(p) for group in made for p in group["params"]}
    if not taken <= {id(p) for p in parameters}:
        raise ValueError("Expected groups of the model's trainable parameters, got others. Take them from the model.")
    rest = [p for p in parameters if id(p) not in taken]
    return [{"params": rest}, *made] if rest else made
