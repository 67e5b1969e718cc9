"""Listening in on a model's layers: what each was given, and a zero added to what it answered.

The derivative of a score with respect to those zeros is the signal that comes back to each layer's output: one backward pass
for a whole batch, no hooks on the backward pass, nothing left on the model, and it runs under `torch.func.vmap`.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from fopng.core.batch import map_tensors, tensors_of
from fopng.gradients.rules import FactoredRule, Question, Rule, Unsupported, by_automatic, by_loop

FOLDED = -1
"""Samples and positions share the first axis, sample by sample."""

_HOLE = torch.empty(0)


@dataclass
class Site:
    """A module that is listened to.

    Args:
        path: its name in the model.
        module: the module.
        own: the trainable parameters that it answers for, their names in the module and in the layout.
        rule: its closed form, or None for the automatic way.
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
class Call:
    """One call of a site: what was recorded, and the zeros that were added to its outputs.

    Args:
        site: the module that was called.
        form: its arguments with their tensors taken out (automatic sites only).
        records: the tensors kept, `[*lead, ...]`.
        zeros: one for each output, `[*lead, ...]`.
    """

    site: Site
    form: Any
    records: tuple[Tensor, ...]
    zeros: tuple[Tensor, ...]

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """All tensors of the call, inputs first."""
        return self.records + self.zeros


class Taps:
    """Hooks on the sites of a model for as long as the context lasts.

    Args:
        sites: the modules to listen to.
        zeros: the zeros to add, in the order of the calls; made on the way when None.
    """

    def __init__(self, sites: Sequence[Site], zeros: Sequence[Tensor] | None = None) -> None:
        self._sites = sites
        self._supply = None if zeros is None else iter(zeros)
        self._handles: list[torch.utils.hooks.RemovableHandle] = []
        self.calls: list[Call] = []

    def __enter__(self) -> "Taps":
        try:
            for site in self._sites:
                # first in line: the rule speaks of the module's own output, before any hook of the user's
                hook = site.module.register_forward_hook(self._listener(site), prepend=True, with_kwargs=True)
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

    def _listener(self, site: Site) -> Any:
        def listen(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> Any:
            zeros: list[Tensor] = []

            def tap(tensor: Tensor) -> Tensor:
                if not tensor.is_floating_point():
                    return tensor
                zeros.append(self._zero(tensor))
                return tensor + zeros[-1]

            tapped = map_tensors(tap, output)
            if site.rule is not None:
                inputs = args[0] if args else next(iter(kwargs.values()))
                form, records = None, [site.rule.record(module, inputs)]
            else:
                form, records = map_tensors(lambda _: _HOLE, (args, kwargs)), tensors_of((args, kwargs))
            self.calls.append(Call(site, form, tuple(tensor.detach() for tensor in records), tuple(zeros)))
            return tapped

        return listen


def find_axis(tensor: Tensor, n: int) -> int | None:
    """Find the axis that numbers n samples: the first, the second, the first folded with positions, or none."""
    if tensor.dim() > 0 and tensor.shape[0] == n:
        return 0
    if tensor.dim() > 1 and tensor.shape[1] == n:
        return 1
    return FOLDED if tensor.dim() > 0 and tensor.shape[0] > 0 and tensor.shape[0] % n == 0 else None


def learn_axes(call: Call, n: int) -> None:
    """Find where the samples are in a call's tensors, and keep it with the site."""
    call.site.axes[axes_key(call, 0)] = tuple(find_axis(tensor, n) for tensor in call.tensors)


def axes_key(call: Call, lead: int) -> tuple[int, ...]:
    """What tells two ways of calling a module apart: the dimensions of its tensors."""
    return tuple(tensor.dim() - lead for tensor in call.tensors)


def axes_fit(call: Call, lead: int, n: int) -> bool:
    """Tell whether the samples are where they were found to be: a module may be sent a part of them."""
    sizes = [
        n if axis is None else tensor.shape[lead] % n or n if axis == FOLDED else tensor.shape[lead + axis]
        for tensor, axis in zip(call.tensors, call.site.axes[axes_key(call, lead)], strict=True)
    ]
    return all(size == n for size in sizes)


def _samples_first(tensor: Tensor, axis: int | None, lead: int, n: int) -> Tensor:
    """Bring `[*lead, ...]` into the form `[*lead, n, ...]`; one that is not per sample stays."""
    if axis == FOLDED:
        return tensor.reshape(*tensor.shape[:lead], n, -1, *tensor.shape[lead + 1 :])
    return tensor.movedim(lead + axis, lead) if axis else tensor


def _wide(tensor: Tensor) -> Tensor:
    return tensor.float() if tensor.dtype in (torch.half, torch.bfloat16) else tensor


def layer_inputs(calls: Sequence[Call], lead: int, n: int) -> Tensor:
    """What a layer with a `FactoredRule` was given, `a [*lead, n, t, i]`, over all its calls: a second call is more positions."""
    rule = _factored_rule(calls[0])
    return _positions(
        [(call, call.records[0], call.site.axes[axes_key(call, lead)][0]) for call in calls], rule.inputs, lead, n
    )


def layer_signals(calls: Sequence[tuple[Call, Tensor]], lead: int, n: int) -> Tensor:
    """What came back to such a layer's output, `d [*lead, n, t, o]`, over all its calls."""
    rule = _factored_rule(calls[0][0])
    return _positions(
        [(call, signal, call.site.axes[axes_key(call, lead)][1]) for call, signal in calls], rule.signals, lead, n
    )


def _factored_rule(call: Call) -> FactoredRule:
    assert isinstance(call.site.rule, FactoredRule)
    return call.site.rule


def _positions(
    parts: Sequence[tuple[Call, Tensor, int | None]],
    factor: Callable[[nn.Module, Tensor], Tensor],
    lead: int,
    n: int,
) -> Tensor:
    """One factor of each call, `[*lead, n, t, k]`, joined along the positions."""
    found = []
    for call, tensor, axis in parts:
        if axis is None:
            raise Unsupported
        first = _wide(_samples_first(tensor, axis, lead, n))
        rows = factor(call.site.module, first.flatten(0, lead + 1 if axis == FOLDED else lead))
        found.append(rows.reshape(*first.shape[: lead + 1], -1, rows.shape[-1]))
    return torch.cat(found, -2) if len(found) > 1 else found[0]


def rule_gradients(call: Call, signal: Tensor, lead: int, n: int) -> dict[str, Tensor]:
    """Per-sample gradients of one call of a site that has a rule: `[*lead, n, *shape]` by the module's names."""
    assert call.site.rule is not None
    axes = call.site.axes[axes_key(call, lead)]
    if any(axis is None for axis in axes) or (FOLDED in axes and set(axes) != {FOLDED}):
        raise Unsupported
    rows, folds = signal.shape[:lead].numel() * n, 1
    pair = []
    for tensor, axis in zip((call.records[0], signal), axes, strict=True):
        first = _samples_first(tensor, axis, lead, n).flatten(0, lead)
        if axis == FOLDED:
            folds = first.shape[1]
            first = first.flatten(0, 1)
        pair.append(_wide(first))
    found = call.site.rule.gradients(call.site.module, *pair)
    lead_shape = signal.shape[:lead]
    return {
        name: value.reshape(rows, folds, *value.shape[1:]).sum(1).reshape(*lead_shape, n, *value.shape[1:])
        for name, value in found.items()
    }


def automatic_gradients(
    call: Call, signals: Sequence[Tensor], values: dict[str, Tensor], buffers: dict[str, Tensor], lead: int, n: int
) -> dict[str, Tensor]:
    """Per-sample gradients of one call of a site without a rule: its forward pass again, one sample at a time.

    Args:
        call: the call.
        signals: the score's derivative at each of its outputs.
        values: all its parameters, by the module's names, `[*lead, *shape]`.
        buffers: the module's buffers.
        lead: the number of replica axes.
        n: the number of samples.
    """
    site = call.site
    axes = site.axes[axes_key(call, lead)]
    inputs, outputs = axes[: len(call.records)], axes[len(call.records) :]
    if FOLDED in axes or None in outputs:
        raise Unsupported
    pieces = [_samples_first(t, axis, lead, n) for t, axis in zip(call.records, inputs, strict=True)]
    backs = [_samples_first(t, axis, lead, n) for t, axis in zip(signals, outputs, strict=True)]

    def answer(parameters: dict[str, Tensor], sample: Sequence[Tensor]) -> list[Tensor]:
        whole = iter([t if axis is None else t.unsqueeze(axis) for t, axis in zip(sample, inputs, strict=True)])
        args, kwargs = map_tensors(lambda _: next(whole), call.form)
        output = torch.func.functional_call(site.module, {**buffers, **parameters}, args, kwargs)
        floating = [t for t in tensors_of(output) if t.is_floating_point()]
        return [t.squeeze(axis) for t, axis in zip(floating, outputs, strict=True) if axis is not None]

    question = Question(
        answer,
        own={name: values[name] for name in site.own},
        fixed={name: value for name, value in values.items() if name not in site.own},
        pieces=pieces,
        axes=[None if axis is None else 0 for axis in inputs],
        signals=backs,
        lead=lead,
    )
    ways = [by_automatic, by_loop] if site.mappable else [by_loop]
    for way in ways:
        try:
            return {name: _wide(value) for name, value in way(question).items()}
        except torch.OutOfMemoryError:
            raise
        except (RuntimeError, ValueError, TypeError) as failure:
            site.mappable = False
            reason = failure
    raise Unsupported(str(reason)) from reason


@contextmanager
def undisturbed(model: nn.Module) -> Iterator[None]:
    """Let a model be asked without a trace: dropout off, modes and random states put back afterwards."""
    modes = [(module, module.training) for module in model.modules()]
    held = [(module, dict(module._parameters), dict(module._buffers)) for module, _ in modes]
    recurrent = [
        (module, list(module._flat_weights), list(module._flat_weight_refs))
        for module, _ in modes
        if isinstance(module, nn.RNNBase)
    ]
    devices = {p.device for p in model.parameters() if p.device.type == "cuda"}
    fast = torch.backends.mha.get_fastpath_enabled()
    with ExitStack() as stack:
        stack.enter_context(torch.random.fork_rng([device.index for device in devices]))
        stack.enter_context(torch.inference_mode(False))
        stack.enter_context(torch.enable_grad())
        # fused attention cannot be mapped over samples
        stack.enter_context(sdpa_kernel(SDPBackend.MATH))
        if recurrent:
            # cuDNN differentiates recurrent layers in training mode only
            stack.enter_context(torch.backends.cudnn.flags(enabled=False))
        try:
            model.eval()
            # the fused path of the transformer layers would answer without calling the layers inside
            torch.backends.mha.set_fastpath_enabled(False)
            yield
        finally:
            torch.backends.mha.set_fastpath_enabled(fast)
            for module, training in modes:
                module.training = training
            for module, parameters, buffers in held:
                # functional_call forgets to put a module's own back where it stands under two parents
                module._parameters.update(parameters)
                module._buffers.update(buffers)
            for module, weights, references in recurrent:
                # functional_call leaves the tensors that it was given behind, from which no gradient comes back
                module._flat_weights, module._flat_weight_refs = weights, references
