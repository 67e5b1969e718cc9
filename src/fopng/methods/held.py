"""What parameters hold: their values in one row, and the gradients when a step is taken."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from fopng.parameters import ParamLayout


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
