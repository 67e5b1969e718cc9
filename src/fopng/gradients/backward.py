"""Pulling a signal back from a model's outputs to its layers, and turning what arrives into per-sample gradients."""

from collections import Counter
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor
from torch.utils.checkpoint import CheckpointError

from fopng.core.layout import ParamLayout
from fopng.gradients.hooks import Call, Site, automatic_gradients, layer_inputs, layer_signals, rule_gradients
from fopng.gradients.layers import DenseGradients, LayerGradients, LinearGradients, SampleGradients
from fopng.gradients.rules import FactoredRule, LinearRule, Unsupported
from fopng.gradients.tracing import Asked, Recording

Names = tuple[str, ...]
"""Neighbouring parameters of one layer."""

Arrival = tuple[Call, list[Tensor]]
"""A call, and the score's derivative at each of its outputs."""


class SiteUnsupported(Exception):
    """No way was found to the per-sample gradients of one site.

    Args:
        site: the module in question.
    """

    def __init__(self, site: Site) -> None:
        super().__init__(site.path)
        self.site = site


def pull(
    asked: Asked, layout: ParamLayout, sites: Sequence[Site], recording: Recording, back: Tensor
) -> SampleGradients:
    """Send a signal back from the outputs and turn what reaches each site into gradients.

    Args:
        asked: the model.
        layout: the flat order.
        sites: those that were listened to.
        recording: of a forward pass.
        back: the score's derivative at the outputs.
    """
    layers = _collect(asked, layout, sites, recording, _arrivals(recording, back))
    if not layers:
        name, value = next(iter(recording.values.items()))
        nothing = value.new_zeros(*value.shape[: recording.lead], recording.count, layout.shapes[name].numel())
        layers[(name,)] = DenseGradients(nothing)
    return SampleGradients(layout, layers, recording.count)


def pull_factors(
    asked: Asked, layout: ParamLayout, sites: Sequence[Site], recording: Recording, back: Tensor
) -> Iterator[tuple[Names, LayerGradients]]:
    """As `pull`, layer by layer, with the two factors of every layer that has some, however large.

    Args: as those of `pull`.
    """
    arrivals = _arrivals(recording, back)
    apart = factored_sites(layout, sites)
    for names, site in apart.items():
        if id(site) in arrivals:
            yield names, _factors(site, arrivals[id(site)], recording)
    taken = {id(site) for site in apart.values()}
    rest = [site for site in sites if id(site) not in taken]
    yield from _collect(asked, layout, rest, recording, arrivals).items()


def factored_sites(layout: ParamLayout, sites: Sequence[Site]) -> dict[Names, Site]:
    """The sites whose gradients are `sum_t d_t a_t^T`, by the names of their parameters: weight, then bias if there is one."""
    owners = Counter(name for site in sites for name in site.own.values())
    return {
        tuple(site.own.values()): site
        for site in sites
        if isinstance(site.rule, FactoredRule)
        and site.rule.splits(site.module)
        and next(iter(site.own)) == "weight"
        and layout.runs(site.own.values()) == [tuple(site.own.values())]
        and all(owners[name] == 1 for name in site.own.values())
    }


def _collect(
    asked: Asked, layout: ParamLayout, sites: Sequence[Site], recording: Recording, arrivals: dict[int, list[Arrival]]
) -> dict[Names, LayerGradients]:
    """Gradients of every site that something arrived at."""
    owners = Counter(name for site in sites for name in site.own.values())
    whole = factored_sites(layout, sites)
    layers: dict[Names, LayerGradients] = {}
    for site in sites:
        if id(site) not in arrivals:
            continue
        tied = any(owners[name] > 1 for name in site.own.values())
        try:
            factored = (
                _smaller(site, arrivals[id(site)], recording) if whole.get(tuple(site.own.values())) is site else None
            )
            if factored is not None:
                layers[tuple(site.own.values())] = factored
            else:
                found = _written_out(asked, site, arrivals[id(site)], recording)
                _add_dense(layers, layout.runs(found) if not tied else [(name,) for name in found], found)
        except Unsupported as failure:
            raise SiteUnsupported(site) from failure
    return layers


def _arrivals(recording: Recording, back: Tensor) -> dict[int, list[Arrival]]:
    """What arrives at each site that the signal reaches, by the site's id."""
    arrivals: dict[int, list[Arrival]] = {}
    zeros = [zero for call in recording.calls for zero in call.zeros]
    if not recording.outputs.requires_grad:
        return arrivals
    try:
        found = iter(torch.autograd.grad(recording.outputs, zeros, back, retain_graph=True, allow_unused=True))
    except CheckpointError as failure:
        raise ValueError(
            "The model runs parts of itself again in the backward pass (activation checkpointing), where they cannot be listened "
            "to. Turn checkpointing off in eval mode."
        ) from failure
    for call in recording.calls:
        arrived = [next(found) for _ in call.zeros]
        if any(signal is not None for signal in arrived):
            full = [torch.zeros_like(z) if s is None else s for z, s in zip(call.zeros, arrived, strict=True)]
            arrivals.setdefault(id(call.site), []).append((call, full))
    return arrivals


def _factors(site: Site, arrivals: list[Arrival], recording: Recording) -> LinearGradients:
    """The two factors of a site."""
    lead, n = recording.lead, recording.count
    a = layer_inputs([call for call, _ in arrivals], lead, n)
    d = layer_signals([(call, arrived[0]) for call, arrived in arrivals], lead, n)
    return LinearGradients(a, d, bias="bias" in site.own)


def _smaller(site: Site, arrivals: list[Arrival], recording: Recording) -> LinearGradients | None:
    """The factors of a `Linear`, where they are smaller than its gradient; those of a convolution never are."""
    if not isinstance(site.rule, LinearRule):
        return None
    found = _factors(site, arrivals, recording)
    a, d = found.a, found.d
    return found if a.shape[-2] * (a.shape[-1] + d.shape[-1]) <= a.shape[-1] * d.shape[-1] else None


def _written_out(asked: Asked, site: Site, arrivals: list[Arrival], recording: Recording) -> dict[str, Tensor]:
    """Gradients `[*lead, n, q]` of each parameter of a site, added up over its calls."""
    lead, n = recording.lead, recording.count
    total: dict[str, Tensor] = {}
    for call, arrived in arrivals:
        if site.rule is not None:
            found = rule_gradients(call, arrived[0], lead, n)
        else:
            values, rest = asked.local_state(site.module, recording)
            found = automatic_gradients(call, arrived, values, rest, lead, n)
        for local, name in site.own.items():
            if local in found:
                flat = found[local].flatten(lead + 1) if found[local].dim() > lead + 1 else found[local].unsqueeze(-1)
                total[name] = total[name] + flat if name in total else flat
    return total


def _add_dense(layers: dict[Names, LayerGradients], runs: list[Names], found: dict[str, Tensor]) -> None:
    for names in runs:
        g = torch.cat([found[name] for name in names], -1) if len(names) > 1 else found[names[0]]
        other = layers.get(names)
        layers[names] = DenseGradients(g + other.g if isinstance(other, DenseGradients) else g)
