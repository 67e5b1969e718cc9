"""Differentiate a model's outputs with respect to those of its layers, and make per-sample gradients of what arrives there."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

import torch
from torch import Tensor
from torch.utils.checkpoint import CheckpointError

from fopng.core.layout import ParamLayout
from fopng.gradients.fallback import fallback_gradients
from fopng.gradients.hooks import ModuleCall, TracedModule, layer_inputs, layer_signals, rule_gradients
from fopng.gradients.layers import DenseGradients, LayerGradients, LinearGradients, Names, SampleGradients
from fopng.gradients.rules import FactoredRule, LinearRule, Unsupported
from fopng.gradients.tracing import ForwardTrace, TracedModel

Arrival = tuple[ModuleCall, list[Tensor]]
"""A call, and the score's derivative at each of its outputs."""


class ModuleUnsupported(Exception):
    """No way was found to the per-sample gradients of one module.

    Args:
        module: the module in question.
    """

    def __init__(self, module: TracedModule) -> None:
        super().__init__(module.path)
        self.module = module


def layer_gradients(
    model: TracedModel, layout: ParamLayout, modules: Sequence[TracedModule], trace: ForwardTrace, cotangent: Tensor
) -> SampleGradients:
    """The per-sample gradients of every layer that a backward pass reaches.

    Args:
        model: the model.
        layout: the parameters to differentiate.
        modules: those that were recorded.
        trace: of a forward pass.
        cotangent: the score's derivative at the outputs.
    """
    layers = _collect(model, modules, trace, _arrivals(trace, cotangent))
    if not layers:
        name, value = next(iter(trace.values.items()))
        nothing = value.new_zeros(*value.shape[: trace.lead], trace.count, *layout.shapes[name])
        layers[(name,)] = DenseGradients((nothing,), trace.lead)
    return SampleGradients(layers, trace.count)


def layer_factors(
    model: TracedModel, modules: Sequence[TracedModule], trace: ForwardTrace, cotangent: Tensor
) -> Iterator[tuple[Names, LayerGradients]]:
    """As `layer_gradients`, layer by layer, with the two factors of every layer that has some, however large.

    The weight of a convolution counts as the matrix `[o, i]` that multiplies its patches.

    Args: as those of `layer_gradients`.
    """
    arrivals = _arrivals(trace, cotangent)
    factored = factored_modules(modules)
    for names, module in factored.items():
        if id(module) in arrivals:
            yield names, _factors(module, arrivals[id(module)], trace)
    taken = {id(module) for module in factored.values()}
    rest = [module for module in modules if id(module) not in taken]
    yield from _collect(model, rest, trace, arrivals).items()


def factored_modules(modules: Sequence[TracedModule]) -> dict[Names, TracedModule]:
    """The modules whose gradients are `sum_t d_t a_t^T`, by the names of their parameters: weight, then bias if there is one."""
    owners = _owners(modules)
    return {
        tuple(module.own.values()): module
        for module in modules
        if isinstance(module.rule, FactoredRule)
        and module.rule.splits(module.module)
        and list(module.own) in (["weight"], ["weight", "bias"])
        and all(owners[name] == 1 for name in module.own.values())
    }


def _owners(modules: Sequence[TracedModule]) -> Counter[str]:
    """How many modules answer for each parameter: more than one where it is tied."""
    return Counter(name for module in modules for name in module.own.values())


def _collect(
    model: TracedModel, modules: Sequence[TracedModule], trace: ForwardTrace, arrivals: dict[int, list[Arrival]]
) -> dict[Names, LayerGradients]:
    """Gradients of every module that something arrived at."""
    owners, factored = _owners(modules), factored_modules(modules)
    layers: dict[Names, LayerGradients] = {}
    for module in modules:
        if id(module) not in arrivals:
            continue
        names, own = tuple(module.own.values()), arrivals[id(module)]
        try:
            smaller = _smaller(module, own, trace) if factored.get(names) is module else None
            if smaller is not None:
                layers[names] = smaller
                continue
            found = _written_out(model, module, own, trace)
        except Unsupported as failure:
            raise ModuleUnsupported(module) from failure
        tied = any(owners[name] > 1 for name in names)
        _add_dense(layers, [(name,) for name in found] if tied else _by_layer(found), found, trace.lead)
    return layers


def _by_layer(names: Iterable[str]) -> list[Names]:
    """Parameters of the same module together."""
    found: dict[str, list[str]] = {}
    for name in names:
        found.setdefault(name.rpartition(".")[0], []).append(name)
    return [tuple(own) for own in found.values()]


def _arrivals(trace: ForwardTrace, cotangent: Tensor) -> dict[int, list[Arrival]]:
    """What arrives at each module that the backward pass reaches, by the module's id."""
    arrivals: dict[int, list[Arrival]] = {}
    zeros = [zero for call in trace.calls for zero in call.zeros]
    if not trace.outputs.requires_grad:
        return arrivals
    try:
        found = iter(torch.autograd.grad(trace.outputs, zeros, cotangent, retain_graph=True, allow_unused=True))
    except CheckpointError as failure:
        raise ValueError(
            "The model runs parts of itself again in the backward pass (activation checkpointing), where they cannot be recorded. "
            "Turn checkpointing off in eval mode."
        ) from failure
    for call in trace.calls:
        arrived = [next(found) for _ in call.zeros]
        if any(signal is not None for signal in arrived):
            full = [torch.zeros_like(z) if s is None else s for z, s in zip(call.zeros, arrived, strict=True)]
            arrivals.setdefault(id(call.module), []).append((call, full))
    return arrivals


def _factors(module: TracedModule, arrivals: list[Arrival], trace: ForwardTrace) -> LinearGradients:
    """The two factors of a module."""
    a = layer_inputs([call for call, _ in arrivals], trace.lead, trace.count)
    d = layer_signals([(call, arrived[0]) for call, arrived in arrivals], trace.lead, trace.count)
    return LinearGradients(a, d, bias="bias" in module.own)


def _smaller(module: TracedModule, arrivals: list[Arrival], trace: ForwardTrace) -> LinearGradients | None:
    """The factors of a `Linear`, where they are smaller than its gradient; those of a convolution never are."""
    if not isinstance(module.rule, LinearRule):
        return None
    found = _factors(module, arrivals, trace)
    a, d = found.a, found.d
    return found if a.shape[-2] * (a.shape[-1] + d.shape[-1]) <= a.shape[-1] * d.shape[-1] else None


def _written_out(
    model: TracedModel, module: TracedModule, arrivals: list[Arrival], trace: ForwardTrace
) -> dict[str, Tensor]:
    """Gradients `[*lead, n, *shape]` of each parameter of a module, added up over its calls."""
    lead, n = trace.lead, trace.count
    total: dict[str, Tensor] = {}
    for call, arrived in arrivals:
        if module.rule is not None:
            found = rule_gradients(call, arrived[0], lead, n)
        else:
            values, rest = model.local_state(module.module, trace)
            found = fallback_gradients(call, arrived, values, rest, lead, n)
        for local, name in module.own.items():
            if local in found:
                total[name] = total[name] + found[local] if name in total else found[local]
    return total


def _add_dense(layers: dict[Names, LayerGradients], groups: list[Names], found: dict[str, Tensor], lead: int) -> None:
    for names in groups:
        parts, other = tuple(found[name] for name in names), layers.get(names)
        if isinstance(other, DenseGradients):
            parts = tuple(old + new for old, new in zip(other.parts, parts, strict=True))
        layers[names] = DenseGradients(parts, lead)
