"""Per-sample gradients of parameters whose use has no closed form: through the whole model, one sample at a time."""

from collections.abc import Callable, Collection
from itertools import product

import torch
from torch import Tensor

from fopng.core.batch import map_tensors, tensors_of
from fopng.gradients.axes import at_least_single
from fopng.gradients.rules import Unsupported
from fopng.gradients.tracing import ForwardTrace, State, TracedModel, ignore_slow_vmap

OneSample = Callable[[State, State, list[Tensor]], Tensor]
"""The outputs for one sample, from the parameters in question, the others, and the sample's tensors."""


class Fallback:
    """Gradients of single samples through a whole model.

    Args:
        model: the model.
    """

    def __init__(self, model: TracedModel) -> None:
        self._model, self._mappable = model, True

    def gradients(self, trace: ForwardTrace, cotangent: Tensor, names: Collection[str]) -> dict[str, Tensor]:
        """Those of some parameters: `[*lead, n, *shape]` by name.

        Args:
            trace: of a forward pass.
            cotangent: the score's derivative at its outputs.
            names: the parameters.
        """

        def run(own: State, fixed: State, sample: list[Tensor]) -> Tensor:
            given = iter(sample)
            batch = map_tensors(lambda _: next(given).unsqueeze(0).clone(), trace.batch)
            outputs = self._model.run({**fixed, **own}, trace.rest, batch)[0]
            if len(outputs) != 1:
                raise RuntimeError(f"it answers one sample with a tensor of shape {tuple(outputs.shape)}.")
            return outputs[0]

        for way in [_by_vmap, _by_loop] if self._mappable else [_by_loop]:
            try:
                found = way(run, trace, cotangent, names)
                return {name: at_least_single(value) for name, value in found.items()}
            except torch.OutOfMemoryError:
                raise
            except (RuntimeError, ValueError, TypeError, IndexError) as failure:
                self._mappable = False
                reason = failure
        raise Unsupported(str(reason)) from reason


def _by_vmap(run: OneSample, trace: ForwardTrace, cotangent: Tensor, names: Collection[str]) -> State:
    """By `torch.func`, all samples at once."""

    def one(own: State, fixed: State, sample: list[Tensor], signal: Tensor) -> State:
        vjp = torch.func.vjp(lambda values: run(values, fixed, sample), own)[1]
        (gradient,) = vjp(signal)
        return gradient  # type: ignore[no-any-return]

    mapped = torch.func.vmap(one, in_dims=(None, None, 0, 0))
    for _ in range(trace.lead):
        mapped = torch.func.vmap(mapped)
    own = {name: trace.values[name] for name in names}
    fixed = {name: value for name, value in trace.values.items() if name not in own}
    with ignore_slow_vmap():
        return mapped(own, fixed, tensors_of(trace.batch), cotangent)


def _by_loop(run: OneSample, trace: ForwardTrace, cotangent: Tensor, names: Collection[str]) -> State:
    """The same, one sample after another: for what `torch.func` cannot map."""
    shape, tensors = cotangent.shape[: trace.lead + 1], tensors_of(trace.batch)
    rows: dict[str, list[Tensor]] = {name: [] for name in names}
    for r in product(*map(range, shape[: trace.lead])):
        leaves = {name: trace.values[name][r].detach().requires_grad_() for name in names}
        fixed = {name: value[r] for name, value in trace.values.items() if name not in leaves}
        for k in range(shape[trace.lead]):
            outputs = run(leaves, fixed, [tensor[(*r, k)] for tensor in tensors])
            for name, gradient in _one_gradient(outputs, leaves, cotangent[(*r, k)]).items():
                rows[name].append(gradient)
    return {name: torch.stack(values).unflatten(0, shape) for name, values in rows.items()}


def _one_gradient(outputs: Tensor, leaves: State, signal: Tensor) -> State:
    if not outputs.requires_grad:
        return {name: torch.zeros_like(leaf) for name, leaf in leaves.items()}
    found = torch.autograd.grad(outputs, list(leaves.values()), signal, allow_unused=True)
    pairs = zip(leaves.items(), found, strict=True)
    # an embedding may give sparse ones
    return {name: torch.zeros_like(leaf) if g is None else g.to_dense() for (name, leaf), g in pairs}
