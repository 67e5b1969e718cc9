"""The gradients that parameters hold when a step is taken."""

from collections.abc import Sequence

from torch import Tensor, nn

from fopng.parameters import ParamLayout


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
