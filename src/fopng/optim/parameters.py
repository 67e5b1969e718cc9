"""The parameters of a model that an optimizer trains, by name: read as vectors, and moved by one."""

from collections.abc import Mapping
from math import isfinite
from typing import final

import torch
from torch import Tensor, nn

from fopng.core.layout import ParamLayout, wide_dtype
from fopng.core.vector import Vector


@final
class Parameters:
    """The parameters of a layout in a model.

    Args:
        model: the model.
        layout: which of its parameters, and their shapes.

    Attributes:
        named: the parameters by name.
        some: one of them, for device and precision.
        place: the device and the precision that were noted.
    """

    def __init__(self, model: nn.Module, layout: ParamLayout) -> None:
        named = dict(model.named_parameters())
        self.layout = layout
        self.named: Mapping[str, nn.Parameter] = {name: named[name] for name in layout.names}
        self.some = next(iter(self.named.values()))
        self.note_place()

    def note_place(self) -> None:
        """Look again where the parameters are, and in which precision."""
        self.place = self.some.device, self.some.dtype
        self._wide = wide_dtype(self.named.values())
        same = all(parameter.dtype == self._wide for parameter in self.named.values())
        # no copies where nothing must be widened
        self._theta = Vector(dict(self.named)) if same else None

    @property
    def blank(self) -> Tensor:
        """An empty tensor of the kind that a method calculates in."""
        return torch.empty(0, device=self.some.device, dtype=self._wide)

    @property
    def blank_before(self) -> Tensor:
        """An empty tensor of the kind that the parameters were noted in."""
        return torch.empty(0, device=self.place[0], dtype=self.place[1])

    def names_by_id(self) -> dict[int, str]:
        """Their names by the `id` of the tensor."""
        return {id(p): name for name, p in self.named.items()}

    def values(self) -> Vector:
        """Their values, in the precision that a method calculates in."""
        if self._theta is not None:
            return self._theta
        return Vector({name: parameter.to(self._wide) for name, parameter in self.named.items()})

    def gradients(self) -> Vector:
        """The gradients that they hold; a sparse one written out."""
        found = {}
        for name, parameter in self.named.items():
            grad = parameter.grad
            if grad is None or not grad.numel():
                continue
            if not parameter.requires_grad:
                # left over from before it was frozen
                parameter.grad = None
                continue
            grad = grad.to_dense() if grad.is_sparse else grad
            found[name] = grad if grad.dtype == self._wide else grad.to(self._wide)
        return Vector(found)

    def subtract(self, v: Vector) -> None:
        """Move them by `-v`."""
        moving: list[Tensor] = list(map(self.named.__getitem__, v.parts))
        steps = list(v.parts.values())
        if self._theta is None:
            steps = [step.to(parameter.dtype) for step, parameter in zip(steps, moving, strict=True)]
        torch._foreach_sub_(moving, steps)


def check_finite(g: Vector) -> Tensor | None:
    """Raise for a gradient that is not finite; on a device that would have to be waited for, return whether it is, `[]`."""
    parts = list(g.parts.values())
    if parts[0].device.type != "cpu":
        return torch.stack(torch._foreach_norm(parts, torch.inf)).amax().isfinite()
    # the sum is quick, and may overflow where nothing is wrong
    if not isfinite(torch.stack(torch._foreach_norm(parts)).sum().item()) and (broken := g.name_nonfinite()):
        raise FloatingPointError(
            f"The gradient of {', '.join(map(repr, broken))} holds NaN or infinity; the step was not taken. Lower the learning "
            "rate, clip the gradients, or look at the loss."
        )
    return None
