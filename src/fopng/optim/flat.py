"""What parameters hold: their values in one row, the gradients when a step is taken, and where it leads."""

from collections.abc import Collection, Mapping, Sequence

import torch
from torch import Tensor, nn

from fopng.core.layout import ParamLayout


def widen(tensor: Tensor) -> Tensor:
    """Numbers of half the precision as float32, others as they are."""
    return tensor.float() if tensor.dtype in (torch.half, torch.bfloat16) else tensor


@torch.no_grad()
def flat_values(parameters: Sequence[nn.Parameter]) -> Tensor:
    """The values of parameters in one row, `[p]`."""
    return widen(torch.cat([parameter.reshape(-1) for parameter in parameters]))


@torch.no_grad()
def put_values(parameters: Sequence[nn.Parameter], values: Tensor) -> None:
    """Write values `[p]` into parameters, but for frozen ones."""
    sizes = [parameter.numel() for parameter in parameters]
    for parameter, value in zip(parameters, values.split(sizes), strict=True):
        if parameter.requires_grad:
            parameter.copy_(value.view_as(parameter))


@torch.no_grad()
def subtract(parameters: Sequence[nn.Parameter], steps: Mapping[str, Tensor], names: Collection[str]) -> None:
    """Subtract a step from each of the parameters, in their order, that is named."""
    moving = [
        (parameter, step if step.dtype == parameter.dtype else step.to(parameter.dtype))
        for parameter, (name, step) in zip(parameters, steps.items(), strict=True)
        if name in names
    ]
    torch._foreach_sub_([parameter for parameter, _ in moving], [step for _, step in moving])


def put_back(held: Sequence[tuple[dict[str, Tensor], dict[str, Tensor]]], finite: Tensor) -> None:
    """Undo what a step has made of a state, in pairs of now and before, unless it was finite, `[]`; nobody waits for the device."""
    for own, before in held:
        changed = {k: new for k, new in own.items() if new is not before.get(k) and new.device == finite.device}
        own |= {key: torch.where(finite, new, before.get(key, 0)) for key, new in changed.items()}


def held_gradients(names: Sequence[str], parameters: Sequence[nn.Parameter]) -> dict[str, Tensor]:
    """The gradients that the parameters hold, by name; a sparse one written out."""
    found = {}
    for name, parameter in zip(names, parameters, strict=True):
        grad = parameter.grad
        if grad is None:
            continue
        if not parameter.requires_grad:
            # left over from before it was frozen
            parameter.grad = None
        else:
            found[name] = grad.to_dense() if grad.is_sparse else grad
    return found


def refuse_nonfinite(layout: ParamLayout, g: Tensor) -> None:
    """Raise for a gradient `[p]` that is not finite, and name the parameters."""
    names = layout.name_nonfinite(g)
    if names:
        raise FloatingPointError(
            f"The gradient of {', '.join(map(repr, names))} holds NaN or infinity; the step was not taken. Lower the "
            "learning rate, clip the gradients, or look at the loss."
        )
