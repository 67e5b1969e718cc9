"""Per-sample gradients of a module without a closed form: its forward pass again, one sample at a time."""

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import product

import torch
from torch import Tensor

from fopng.core.batch import map_tensors, tensors_of
from fopng.gradients.hooks import FOLDED, ModuleCall, at_least_single, axes_key, samples_first
from fopng.gradients.rules import Unsupported

Pieces = Sequence[Tensor]


@dataclass(frozen=True)
class SampleForward:
    """A module's forward pass for one sample at a time, and what is to be differentiated.

    Args:
        run: outputs of one sample, from parameters and its part of the inputs.
        own: the parameters to differentiate, `[*lead, *shape]` each.
        fixed: the other parameters, likewise.
        inputs: `[*lead, n, ...]`, or `[*lead, ...]` where shared between samples.
        axes: 0 for an input that has a sample axis, None for one that is shared.
        signals: the score's derivative at each output, `[*lead, n, ...]`.
        lead: the number of replica axes.
    """

    run: Callable[[dict[str, Tensor], Pieces], Pieces]
    own: dict[str, Tensor]
    fixed: dict[str, Tensor]
    inputs: Pieces
    axes: Sequence[int | None]
    signals: Pieces
    lead: int


def fallback_gradients(
    call: ModuleCall, signals: Pieces, values: dict[str, Tensor], buffers: dict[str, Tensor], lead: int, n: int
) -> dict[str, Tensor]:
    """Per-sample gradients of one call of a module without a rule: `[*lead, n, *shape]` by the module's names.

    Args:
        call: the call.
        signals: the score's derivative at each of its outputs.
        values: all its parameters, by the module's names, `[*lead, *shape]`.
        buffers: the module's buffers.
        lead: the number of replica axes.
        n: the number of samples.
    """
    traced = call.module
    axes = traced.axes[axes_key(call, lead)]
    inputs, outputs = axes[: len(call.records)], axes[len(call.records) :]
    if FOLDED in axes or None in outputs:
        raise Unsupported

    def run(parameters: dict[str, Tensor], sample: Pieces) -> list[Tensor]:
        whole = iter([t if axis is None else t.unsqueeze(axis) for t, axis in zip(sample, inputs, strict=True)])
        args, kwargs = map_tensors(lambda _: next(whole), call.form)
        output = torch.func.functional_call(traced.module, {**buffers, **parameters}, args, kwargs)
        floating = [t for t in tensors_of(output) if t.is_floating_point()]
        return [t.squeeze(axis) for t, axis in zip(floating, outputs, strict=True) if axis is not None]

    forward = SampleForward(
        run,
        own={name: values[name] for name in traced.own},
        fixed={name: value for name, value in values.items() if name not in traced.own},
        inputs=[samples_first(t, axis, lead, n) for t, axis in zip(call.records, inputs, strict=True)],
        axes=[None if axis is None else 0 for axis in inputs],
        signals=[samples_first(t, axis, lead, n) for t, axis in zip(signals, outputs, strict=True)],
        lead=lead,
    )
    for way in [by_vmap, by_loop] if traced.mappable else [by_loop]:
        try:
            return {name: at_least_single(value) for name, value in way(forward).items()}
        except torch.OutOfMemoryError:
            raise
        except (RuntimeError, ValueError, TypeError) as failure:
            traced.mappable = False
            reason = failure
    raise Unsupported(str(reason)) from reason


def by_vmap(forward: SampleForward) -> dict[str, Tensor]:
    """Per-sample gradients by `torch.func`: `[*lead, n, *shape]` of each parameter."""

    def one(own: dict[str, Tensor], fixed: dict[str, Tensor], sample: Pieces, signals: Pieces) -> dict[str, Tensor]:
        vjp = torch.func.vjp(lambda values: tuple(forward.run({**fixed, **values}, sample)), own)[1]
        (gradient,) = vjp(tuple(signals))
        return gradient  # type: ignore[no-any-return]

    mapped = torch.func.vmap(one, in_dims=(None, None, list(forward.axes), 0))
    for _ in range(forward.lead):
        mapped = torch.func.vmap(mapped)
    with ignore_slow_vmap():
        return mapped(forward.own, forward.fixed, list(forward.inputs), list(forward.signals))


@contextmanager
def ignore_slow_vmap() -> Iterator[None]:
    """Do without torch's warning that it loops inside over an operation that it cannot map."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "There is a performance drop")
        yield


def by_loop(forward: SampleForward) -> dict[str, Tensor]:
    """The same, one sample after another: for what `torch.func` cannot map."""
    shape = forward.signals[0].shape[: forward.lead + 1]
    rows: dict[str, list[Tensor]] = {name: [] for name in forward.own}
    for r in product(*map(range, shape[: forward.lead])):
        leaves = {name: value[r].detach().requires_grad_() for name, value in forward.own.items()}
        fixed = {name: value[r] for name, value in forward.fixed.items()}
        for k in range(shape[forward.lead]):
            pairs = zip(forward.inputs, forward.axes, strict=True)
            sample = [given[r] if axis is None else given[(*r, k)] for given, axis in pairs]
            outputs = forward.run({**fixed, **leaves}, sample)
            for name, gradient in _one_gradient(outputs, leaves, [s[(*r, k)] for s in forward.signals]).items():
                rows[name].append(gradient)
    return {name: torch.stack(values).unflatten(0, shape) for name, values in rows.items()}


def _one_gradient(outputs: Pieces, leaves: dict[str, Tensor], signals: Pieces) -> dict[str, Tensor]:
    pairs = [(output, signal) for output, signal in zip(outputs, signals, strict=True) if output.requires_grad]
    if not pairs:
        return {name: torch.zeros_like(leaf) for name, leaf in leaves.items()}
    found = torch.autograd.grad(
        [output for output, _ in pairs], list(leaves.values()), [signal for _, signal in pairs], allow_unused=True
    )
    return {
        name: torch.zeros_like(leaf) if g is None else g.to_dense()
        for (name, leaf), g in zip(leaves.items(), found, strict=True)
    }
