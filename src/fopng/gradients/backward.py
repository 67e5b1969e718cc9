"""Differentiate a model's outputs with respect to those of its operations, and make per-sample gradients of what arrives there."""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence

import torch
from torch import Tensor
from torch.utils.checkpoint import CheckpointError

from fopng.core.layout import ParamLayout
from fopng.gradients.axes import Axes, Way, axes_fit, rows_of, way_of
from fopng.gradients.capture import SiteCall
from fopng.gradients.fallback import Fallback
from fopng.gradients.layers import DenseGradients, LayerGradients, LinearGradients, Names, SampleGradients
from fopng.gradients.rules import ProductRule, Unsupported
from fopng.gradients.tracing import ForwardTrace, TracedModel
from fopng.gradients.uses import Use, uses_of

Calls = list[tuple[SiteCall, Tensor]]
"""Calls, and the score's derivative at the output of each."""


class Knowledge:
    """What has been found out about a model's uses of its parameters.

    Attributes:
        axes: where the samples are, by the way of a use.
        alone: parameters whose per-sample gradients go through the whole model.
        summed: those of them whose gradients are right when all samples are added up.
        known: parameters whose uses were checked.
    """

    def __init__(self) -> None:
        self.axes: dict[Way, Axes] = {}
        self.alone: set[str] = set()
        self.summed: set[str] = set()
        self.known: set[str] = set()

    def axes_of(self, call: SiteCall, lead: int, n: int) -> Axes | None:
        """Where a call's samples are; None where that is not known."""
        axes = self.axes.get(way_of(call, lead))
        return axes if axes is not None and None not in axes and axes_fit(call, axes, lead, n) else None


class Gradients:
    """Per-sample gradients of a model.

    Args:
        model: the model.
        layout: the parameters to differentiate.
        knowledge: what is known about their uses.
    """

    def __init__(self, model: TracedModel, layout: ParamLayout, knowledge: Knowledge) -> None:
        self._knowledge, self._fallback = knowledge, Fallback(model)
        order = [name for name, _ in model.model.named_parameters() if name in layout.shapes]
        self._layout, self._order = layout, {name: k for k, name in enumerate(order)}

    def of_samples(self, trace: ForwardTrace, cotangent: Tensor) -> SampleGradients:
        """Those of every layer that a backward pass reaches.

        Args:
            trace: of a forward pass.
            cotangent: the score's derivative at the outputs.
        """
        layers = self._collect(trace, arrivals(trace, cotangent), cotangent, without=())
        if not layers:
            name, value = next(iter(trace.values.items()))
            nothing = value.new_zeros(*value.shape[: trace.lead], trace.count, *self._layout.shapes[name])
            layers[(name,)] = DenseGradients((nothing,), trace.lead)
        return SampleGradients(layers, trace.count)

    def factors(self, trace: ForwardTrace, cotangent: Tensor) -> tuple[list[Use], dict[Names, LayerGradients]]:
        """The two factors of every weight that has some, however large; and the gradients of everything else."""
        calls = arrivals(trace, cotangent)
        uses = list(self.uses(trace, calls))
        inside = {name for use in uses for name in use.names}
        return uses, self._collect(trace, calls, cotangent, without=inside)

    def uses(self, trace: ForwardTrace, calls: Sequence[tuple[SiteCall, Tensor | None]]) -> Iterator[Use]:
        """The uses of all weights that have factors."""
        known = self._knowledge
        sited = [own for own in calls if own[0].site.weight is not None and self._whole(own[0].site.weight.name)]
        axes = [
            None if call.site.names[0] in known.alone else known.axes_of(call, trace.lead, trace.count)
            for call, _ in sited
        ]
        yield from _in_order(uses_of(sited, axes, trace.lead, trace.count), self._order)

    def _whole(self, name: str) -> bool:
        """Whether all uses of a parameter are captured."""
        return name not in self._knowledge.alone or name in self._knowledge.summed

    def _collect(
        self, trace: ForwardTrace, calls: Calls, cotangent: Tensor, without: Collection[str]
    ) -> dict[Names, LayerGradients]:
        """Gradients of all parameters that something arrived at, but for some."""
        alone = self._knowledge.alone
        groups: dict[Names, Calls] = {}
        for call, signal in calls:
            if not set(call.site.names) <= {*alone, *without}:
                groups.setdefault(call.site.names, []).append((call, signal))
        owners = Counter(name for names in groups for name in names)
        layers: dict[Names, LayerGradients] = {}
        for names, own in groups.items():
            tied = any(owners[name] > 1 for name in names)
            smaller = None if tied or {*alone, *without} & set(names) else self._smaller(own, trace)
            if smaller is not None:
                layers.update(smaller)
                continue
            found = self._written_out(own, trace, without={*alone, *without})
            _add_dense(layers, [(name,) for name in found] if tied else by_layer(found), found, trace.lead)
        left = [name for name in self._order if name in alone & trace.touched and name not in without]
        if left:
            found = self._fallback.gradients(trace, cotangent, left)
            _add_dense(layers, by_layer(found), found, trace.lead)
        return {names: layers[names] for names in sorted(layers, key=lambda names: self._order[names[0]])}

    def _smaller(self, calls: Calls, trace: ForwardTrace) -> dict[Names, LayerGradients] | None:
        """The factors of a product, where they are smaller than its gradient; those of a convolution never are."""
        if not all(isinstance(call.site.rule, ProductRule) for call, _ in calls):
            return None
        axes = [self._axes(call, trace) for call, _ in calls]
        uses = list(uses_of(calls, axes, trace.lead, trace.count))
        if len(uses) != 1 or set(uses[0].names) != set(calls[0][0].site.names) or uses[0].form.split > 1:
            return None
        [use] = uses
        a, d = use.a, use.d
        assert d is not None
        if a.shape[-2] * (a.shape[-1] + d.shape[-1]) > a.shape[-1] * d.shape[-1]:
            return None
        if not use.form.transposed:
            return {use.names: LinearGradients(a, d, bias=len(use.names) > 1)}
        found: dict[Names, LayerGradients] = {use.names[:1]: LinearGradients(d, a, bias=False)}
        if len(use.names) > 1:
            found[use.names[1:]] = DenseGradients((d.sum(-2),), trace.lead)
        return found

    def unsupported(self, call: SiteCall, trace: ForwardTrace) -> set[str]:
        """The parameters of a call whose closed form does not fit it."""
        try:
            self._of_call(call, torch.zeros_like(call.zero), self._axes(call, trace), trace)
        except Unsupported:
            return set(call.site.names)
        return set()

    def _axes(self, call: SiteCall, trace: ForwardTrace) -> Axes:
        axes = self._knowledge.axes_of(call, trace.lead, trace.count)
        if axes is None or (min(own or 0 for own in axes) < 0 and len(set(axes)) > 1):
            raise Unsupported
        return axes

    def _written_out(self, calls: Calls, trace: ForwardTrace, without: Collection[str]) -> dict[str, Tensor]:
        """Gradients `[*lead, n, *shape]` of each parameter of a site, added up over its calls."""
        total: dict[str, Tensor] = {}
        for call, signal in calls:
            for name, found in self._of_call(call, signal, self._axes(call, trace), trace).items():
                if name not in without:
                    total[name] = total[name] + found if name in total else found
        return total

    def _of_call(self, call: SiteCall, signal: Tensor, axes: Axes, trace: ForwardTrace) -> dict[str, Tensor]:
        rule, lead, n = call.site.rule, signal.shape[: trace.lead], trace.count
        tensors = [call.record, signal] if rule.sampled else [signal]
        rows, folds = rows_of(tensors, axes, trace.lead, n)
        record = rows[0] if rule.sampled else call.record[(0,) * trace.lead]
        found = {}
        for place, value in zip(call.site.places, rule.gradients(record, rows[-1]), strict=True):
            if place is not None:
                spread = place.spread(value)
                whole = spread.reshape(-1, folds, *spread.shape[1:]).sum(1)
                found[place.name] = whole.reshape(*lead, n, *place.shape)
        return found


def arrivals(trace: ForwardTrace, cotangent: Tensor) -> Calls:
    """What arrives at each call that a backward pass reaches."""
    zeros = [call.zero for call in trace.calls]
    if not trace.outputs.requires_grad or not zeros:
        return []
    try:
        found = torch.autograd.grad(trace.outputs, zeros, cotangent, retain_graph=True, allow_unused=True)
    except CheckpointError as failure:
        raise ValueError(
            "The model runs parts of itself again in the backward pass (activation checkpointing), where they cannot be recorded. "
            "Turn checkpointing off in eval mode."
        ) from failure
    return [(call, signal) for call, signal in zip(trace.calls, found, strict=True) if signal is not None]


def total_gradients(calls: Calls) -> dict[str, Tensor]:
    """The gradients of all samples added up, wherever each is; only without replicas."""
    total: dict[str, Tensor] = {}
    for call, signal in calls:
        if not call.site.rule.sampled or call.record.dim() < 1 + call.record.is_floating_point():
            continue
        for place, value in zip(call.site.places, call.site.rule.gradients(call.record, signal), strict=True):
            if place is not None:
                found = place.spread(value).sum(0)
                total[place.name] = total[place.name] + found if place.name in total else found
    return total


def by_layer(names: Iterable[str]) -> list[Names]:
    """Parameters of the same module together."""
    found: dict[str, list[str]] = {}
    for name in names:
        found.setdefault(name.rpartition(".")[0], []).append(name)
    return [tuple(own) for own in found.values()]


def _in_order(uses: Iterable[Use], order: dict[str, int]) -> list[Use]:
    return sorted(uses, key=lambda use: order[use.names[0]])


def _add_dense(layers: dict[Names, LayerGradients], groups: list[Names], found: dict[str, Tensor], lead: int) -> None:
    for names in groups:
        parts, other = tuple(found[name] for name in names), layers.get(names)
        if isinstance(other, DenseGradients):
            parts = tuple(old + new for old, new in zip(other.parts, parts, strict=True))
        layers[names] = DenseGradients(parts, lead)
