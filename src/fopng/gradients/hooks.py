"""Record what each layer of a model was given, and add a zero to what it returned.

The derivative of a score with respect to those zeros is the signal at each layer's output: one backward pass for a whole batch,
no hooks on the backward pass, nothing left on the model, and it runs under `torch.func.vmap`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

import torch
from torch import Tensor, nn

from fopng.core.batch import map_tensors, tensors_of
from fopng.gradients.rules import FactoredRule, Rule, Unsupported

FOLDED = -1
"""Samples and positions share the first axis, sample by sample."""

_HOLE = torch.empty(0)


@dataclass
class TracedModule:
    """A module whose calls are recorded.

    Args:
        path: its name in the model.
        module: the module.
        own: the parameters that it answers for, their names in the module and in the model.
        rule: its closed form, or None for the fallback.
        axes: where the samples are in its inputs and outputs, by the tensors' dimensions; found on a trial batch.
        mappable: False once `torch.func` has failed on it.
    """

    path: str
    module: nn.Module
    own: dict[str, str]
    rule: Rule | None
    axes: dict[tuple[int, ...], tuple[int | None, ...]] = field(default_factory=dict)
    mappable: bool = True


@dataclass(frozen=True)
class ModuleCall:
    """One call of a module: what was recorded, and the zeros that were added to its outputs.

    Args:
        module: the module that was called.
        form: its arguments with their tensors taken out (modules without a rule only).
        records: the tensors kept, `[*lead, ...]`.
        zeros: one for each output, `[*lead, ...]`.
    """

    module: TracedModule
    form: Any
    records: tuple[Tensor, ...]
    zeros: tuple[Tensor, ...]

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """All tensors of the call, inputs first."""
        return self.records + self.zeros


class LayerRecorder:
    """Hooks on modules of a model for as long as the context lasts.

    Args:
        modules: the modules to record.
        zeros: the zeros to add, in the order of the calls; made on the way when None.
    """

    def __init__(self, modules: Sequence[TracedModule], zeros: Sequence[Tensor] | None = None) -> None:
        self._modules = modules
        self._supply = None if zeros is None else iter(zeros)
        self._handles: list[torch.utils.hooks.RemovableHandle] = []
        self.calls: list[ModuleCall] = []

    def __enter__(self) -> "LayerRecorder":
        try:
            for module in self._modules:
                # first in line: the rule speaks of the module's own output, before any hook of the user's
                hook = module.module.register_forward_hook(self._hook(module), prepend=True, with_kwargs=True)
                self._handles.append(hook)
        except BaseException:
            self._remove()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._remove()

    def _remove(self) -> None:
        for handle in self._handles:
            handle.remove()

    def _zero(self, output: Tensor) -> Tensor:
        if self._supply is not None:
            return next(self._supply)
        return torch.zeros((), dtype=output.dtype, device=output.device, requires_grad=True).expand(output.shape)

    def _hook(self, traced: TracedModule) -> Any:
        def record(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> Any:
            zeros: list[Tensor] = []

            def add_zero(tensor: Tensor) -> Tensor:
                if not tensor.is_floating_point():
                    return tensor
                zeros.append(self._zero(tensor))
                return tensor + zeros[-1]

            changed = map_tensors(add_zero, output)
            if traced.rule is not None:
                inputs = args[0] if args else next(iter(kwargs.values()))
                form, records = None, [traced.rule.record(module, inputs)]
            else:
                form, records = map_tensors(lambda _: _HOLE, (args, kwargs)), tensors_of((args, kwargs))
            self.calls.append(ModuleCall(traced, form, tuple(tensor.detach() for tensor in records), tuple(zeros)))
            return changed

        return record


def find_axis(tensor: Tensor, n: int) -> int | None:
    """Find the axis that numbers n samples: the first, the second, the first folded with positions, or none."""
    if tensor.dim() > 0 and tensor.shape[0] == n:
        return 0
    if tensor.dim() > 1 and tensor.shape[1] == n:
        return 1
    return FOLDED if tensor.dim() > 0 and tensor.shape[0] > 0 and tensor.shape[0] % n == 0 else None


def find_axes(call: ModuleCall, n: int) -> None:
    """Find where the samples are in a call's tensors, and keep it with the module."""
    call.module.axes[axes_key(call, 0)] = tuple(find_axis(tensor, n) for tensor in call.tensors)


def axes_key(call: ModuleCall, lead: int) -> tuple[int, ...]:
    """What tells two ways of calling a module apart: the dimensions of its tensors."""
    return tuple(tensor.dim() - lead for tensor in call.tensors)


def axes_fit(call: ModuleCall, lead: int, n: int) -> bool:
    """Tell whether the samples are where they were found to be: a module may be sent a part of them."""
    sizes = [
        n if axis is None else tensor.shape[lead] % n or n if axis == FOLDED else tensor.shape[lead + axis]
        for tensor, axis in zip(call.tensors, call.module.axes[axes_key(call, lead)], strict=True)
    ]
    return all(size == n for size in sizes)


def samples_first(tensor: Tensor, axis: int | None, lead: int, n: int) -> Tensor:
    """Bring `[*lead, ...]` into the form `[*lead, n, ...]`; one that is not per sample stays."""
    if axis == FOLDED:
        return tensor.reshape(*tensor.shape[:lead], n, -1, *tensor.shape[lead + 1 :])
    return tensor.movedim(lead + axis, lead) if axis else tensor


def at_least_single(tensor: Tensor) -> Tensor:
    """Half precision as single: gradients are summed and squared."""
    return tensor.float() if tensor.dtype in (torch.half, torch.bfloat16) else tensor


def layer_inputs(calls: Sequence[ModuleCall], lead: int, n: int) -> Tensor:
    """What a layer with a `FactoredRule` was given, `a [*lead, n, t, i]`, over all its calls: a second call is more positions."""
    rule = _factored_rule(calls[0])
    return _positions(
        [(call, call.records[0], call.module.axes[axes_key(call, lead)][0]) for call in calls], rule.inputs, lead, n
    )


def layer_signals(calls: Sequence[tuple[ModuleCall, Tensor]], lead: int, n: int) -> Tensor:
    """The score's derivative at such a layer's output, `d [*lead, n, t, o]`, over all its calls."""
    rule = _factored_rule(calls[0][0])
    return _positions(
        [(call, signal, call.module.axes[axes_key(call, lead)][1]) for call, signal in calls], rule.signals, lead, n
    )


def _factored_rule(call: ModuleCall) -> FactoredRule:
    assert isinstance(call.module.rule, FactoredRule)
    return call.module.rule


def _positions(
    parts: Sequence[tuple[ModuleCall, Tensor, int | None]],
    factor: Callable[[nn.Module, Tensor], Tensor],
    lead: int,
    n: int,
) -> Tensor:
    """One factor of each call, `[*lead, n, t, k]`, joined along the positions."""
    found = []
    for call, tensor, axis in parts:
        if axis is None:
            raise Unsupported
        first = at_least_single(samples_first(tensor, axis, lead, n))
        rows = factor(call.module.module, first.flatten(0, lead + 1 if axis == FOLDED else lead))
        found.append(rows.reshape(*first.shape[: lead + 1], -1, rows.shape[-1]))
    return torch.cat(found, -2) if len(found) > 1 else found[0]


def rule_gradients(call: ModuleCall, signal: Tensor, lead: int, n: int) -> dict[str, Tensor]:
    """Per-sample gradients of one call of a module that has a rule: `[*lead, n, *shape]` by the module's names."""
    assert call.module.rule is not None
    axes = call.module.axes[axes_key(call, lead)]
    if any(axis is None for axis in axes) or (FOLDED in axes and set(axes) != {FOLDED}):
        raise Unsupported
    rows, folds = signal.shape[:lead].numel() * n, 1
    pair = []
    for tensor, axis in zip((call.records[0], signal), axes, strict=True):
        first = samples_first(tensor, axis, lead, n).flatten(0, lead)
        if axis == FOLDED:
            folds = first.shape[1]
            first = first.flatten(0, 1)
        pair.append(at_least_single(first))
    found = call.module.rule.gradients(call.module.module, *pair)
    lead_shape = signal.shape[:lead]
    return {
        name: value.reshape(rows, folds, *value.shape[1:]).sum(1).reshape(*lead_shape, n, *value.shape[1:])
        for name, value in found.items()
    }
