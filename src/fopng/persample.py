"""Per-sample gradients of any model: how a model, a batch and a score give them."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from fopng.factors import DenseGradients, LayerGradients, LinearGradients
from fopng.likelihood import Categorical, Labels, Likelihood, Score, signals
from fopng.parameters import ParamLayout
from fopng.rules import LinearRule, Unsupported, check_module, rule_for
from fopng.taps import (
    Call,
    Site,
    Taps,
    automatic_gradients,
    axes_key,
    learn_axes,
    linear_factors,
    rule_gradients,
    undisturbed,
)
from fopng.types import Batch, Predict, map_tensors, predict_pairs, sample_count, take, tensors_of

_TRIAL = 5
"""Samples of the trial batch: few, and rarely the size of another axis."""


@dataclass(frozen=True)
class SampleGradients:
    """The gradients of n samples: a block for each layer that the batch reached, zero elsewhere.

    Args:
        layout: the flat order.
        layers: gradients by the names of the (neighbouring) parameters that they belong to.
        count: n.
    """

    layout: ParamLayout
    layers: Mapping[tuple[str, ...], LayerGradients]
    count: int

    def dense(self) -> Tensor:
        """Write every gradient out: `[..., n, p]`."""
        some = next(iter(self.layers.values()))
        lead = some.slab(0, 1).shape[:-2]
        out = next(iter(some.tensors().values())).new_zeros(*lead, self.count, self.layout.size)
        for names, layer in self.layers.items():
            out[..., self.layout.span(names)] = layer.slab(0, layer.size)
        return out

    def add_squares(self, total: Tensor) -> None:
        """Add the sum of the squared gradients to `total [..., p]`."""
        for names, layer in self.layers.items():
            total[..., self.layout.span(names)] += layer.sum_squares()


@dataclass(frozen=True)
class _Recording:
    """A forward pass that was listened to."""

    outputs: Tensor
    targets: Tensor | None
    calls: list[Call]
    values: dict[str, Tensor]
    buffers: dict[str, Tensor]
    lead: int

    @property
    def count(self) -> int:
        return self.outputs.shape[self.lead]


class _Answer(nn.Module):
    """A model together with the way it is asked, as one module."""

    def __init__(self, model: nn.Module, predict: Predict) -> None:
        super().__init__()
        self.model = model
        self._predict = predict

    def forward(self, batch: Batch) -> tuple[Tensor, Tensor | None]:
        return self._predict(self.model, batch)


class GradientSource:
    """A model that gives the gradient of each sample.

    Layers with a closed form use it; every other module that owns parameters is differentiated sample by sample with
    `torch.func`. The first batch (and any that takes another way through the model) is checked on a few samples against plain
    autograd, one sample alone: a module that does not agree is replaced by the module around it, up to the whole model.

    Args:
        model: any module; its trainable parameters are differentiated.
        predict: how it answers a batch; `model(x)` on `(x, y)` by default.
        likelihood: what its outputs mean.
        layout: the parameters to differentiate; the trainable ones by default.

    >>> source = GradientSource(nn.Linear(3, 2))
    >>> batch = torch.ones(4, 3), torch.tensor([0, 1, 1, 0])
    >>> [g.dense().shape for g in source.gradients(batch, "ground-truth")]
    [torch.Size([4, 8])]
    """

    def __init__(
        self,
        model: nn.Module,
        *,
        predict: Predict = predict_pairs,
        likelihood: Likelihood | None = None,
        layout: ParamLayout | None = None,
    ) -> None:
        self.model = model
        self.likelihood = Categorical() if likelihood is None else likelihood
        self.layout = ParamLayout.of(model) if layout is None else layout
        self._sample_bytes = 0
        self._whole = _Answer(model, predict)
        self._modules = dict(self._whole.named_modules())
        self._sites = self._first_sites()
        self._proven: set[tuple[str, tuple[int, ...]]] = set()

    def gradients(
        self,
        batch: Batch,
        kind: Labels | Score,
        *,
        parameters: Tensor | None = None,
        generator: torch.Generator | None = None,
    ) -> Iterator[SampleGradients]:
        """Yield the gradients of every sample; more than once only for "expected" labels, whose squares add up.

        Args:
            batch: the samples, `[*lead, n, ...]`.
            kind: of which score, or with which labels of the log-likelihood.
            parameters: `[*lead, p]` instead of the model's own, for replicas.
            generator: draws "sampled" labels.
        """
        with undisturbed(self.model):
            recording = self._proven_recording(batch, parameters)
        outputs, targets, axes = recording.outputs, recording.targets, recording.lead + 1
        for back in signals(self.likelihood, kind, outputs, targets, axes=axes, generator=generator):
            with undisturbed(self.model):
                gradients = self._pull(recording, back)
            yield gradients

    def bytes_per_sample(self, batch: Batch, parameters: Tensor | None = None) -> int:
        """How much memory the gradients of one more sample take, measured on a few."""
        with undisturbed(self.model):
            self._proven_recording(batch, parameters)
        replicas = 1 if parameters is None else parameters.shape[:-1].numel()
        return self._sample_bytes * replicas

    # Finding the way

    def _first_sites(self) -> list[Site]:
        """Every module that owns trainable parameters, with its rule."""
        names = self._flat_names()
        sites = []
        for path, module in self._modules.items():
            own = {local: names[p] for local, p in module.named_parameters(recurse=False) if p in names}
            if own:
                check_module(path.removeprefix("model."), module)
                sites.append(Site(path, module, own, rule_for(module)))
        return sites

    def _flat_names(self) -> dict[nn.Parameter, str]:
        return {p: name for name, p in self.model.named_parameters() if name in self.layout.shapes}

    def _widen(self, site: Site) -> None:
        """Replace a site, and all others in the same module, by the module around it."""
        if site.path == "":
            raise ValueError(
                f"Per-sample gradients of {type(self.model).__name__} cannot be found: even one sample alone, differentiated "
                "through the whole model, disagrees with autograd. Is the model random in eval mode? Make it deterministic."
            )
        path = site.path.rpartition(".")[0]
        around = self._modules[path]
        names = self._flat_names()
        own = {local: names[p] for local, p in around.named_parameters() if p in names}
        inside = {id(module) for module in around.modules()}
        self._sites = [s for s in self._sites if id(s.module) not in inside]
        self._sites.append(Site(path, around, own, None))

    def _proven_recording(self, batch: Batch, parameters: Tensor | None) -> _Recording:
        lead = 0 if parameters is None else parameters.dim() - 1
        values = self._values(parameters)
        while True:
            recording = self._record(values, self._buffers(), batch, lead)
            ways = {(call.site.path, axes_key(call, lead)) for call in recording.calls}
            if self._sample_bytes and ways <= self._proven:
                return recording
            self._prove(_first_replica(batch, lead), {name: value[(0,) * lead] for name, value in values.items()})

    def _values(self, parameters: Tensor | None) -> dict[str, Tensor]:
        if parameters is not None:
            return self.layout.split(parameters.detach())
        return {name: p.detach() for name, p in self.model.named_parameters() if name in self.layout.shapes}

    def _buffers(self) -> dict[str, Tensor]:
        """Copies of the model's buffers, so that a model that counts its calls is left as it was."""
        return {name: buffer.detach().clone() for name, buffer in self.model.named_buffers()}

    def _prove(self, batch: Batch, values: dict[str, Tensor]) -> None:
        """Compare one sample of a small batch with plain autograd; widen the sites that disagree until none does."""
        n = sample_count(batch)
        if n == 0:
            raise ValueError("Expected a batch with samples, got an empty one.")
        trial = take(batch, torch.arange(_TRIAL) % n)
        device = next(iter(values.values())).device
        exact: torch.dtype | None = torch.float64 if device.type != "mps" else torch.float32
        wrong: list[Site] | None = None
        while wrong is None or wrong:
            for site in wrong or []:
                if site in self._sites:
                    self._widen(site)
            try:
                wrong = self._disagreeing(trial, values, self._buffers(), exact, tolerance=1e-6)
            except (RuntimeError, TypeError):
                if exact is None:
                    raise
                exact = None
            if exact is None:
                # the model insists on its own precision, where a kink may fall to either side
                wrong = self._disagreeing(trial, values, self._buffers(), None, tolerance=5e-2)

    def _disagreeing(
        self,
        trial: Batch,
        values: dict[str, Tensor],
        buffers: dict[str, Tensor],
        dtype: torch.dtype | None,
        tolerance: float,
    ) -> list[Site]:
        values, buffers, trial = (map_tensors(lambda t: _cast(t, dtype), x) for x in (values, buffers, trial))
        recording = self._record(values, buffers, trial, 0)
        if recording.count != _TRIAL:
            raise ValueError(
                f"Expected outputs with a row a sample ({_TRIAL} samples), got shape {tuple(recording.outputs.shape)}. "
                "Let predict return [samples, ...]."
            )
        for call in recording.calls:
            learn_axes(call, _TRIAL)
        noise = torch.Generator().manual_seed(0)
        back = torch.randn(recording.outputs.shape, generator=noise).to(recording.outputs)
        try:
            found = self._pull(recording, back)
        except _SiteUnsupported as failure:
            if failure.site.path == "":
                raise ValueError(
                    f"Per-sample gradients of {type(self.model).__name__} cannot be found: one sample alone, differentiated "
                    f"through the whole model, fails: {failure.__cause__}. Let the model answer a batch of one."
                ) from failure
            return [failure.site]
        expected = self._alone(take(trial, torch.tensor([_TRIAL - 1])), values, buffers, back[-1:])
        rows = {names: layer.slab(0, layer.size)[-1] for names, layer in found.layers.items()}
        actual = self.layout.join({name: torch.zeros_like(value) for name, value in values.items()})
        for names, row in rows.items():
            actual[self.layout.span(names)] = row.to(actual)
        scale = max((float(e.abs().max()) for e in expected.values()), default=0.0)
        wrong = {
            name
            for name, value in self.layout.split(actual).items()
            if not torch.allclose(value, expected[name].to(value), rtol=tolerance, atol=tolerance * scale)
        }
        if not wrong:
            self._proven |= {(call.site.path, axes_key(call, 0)) for call in recording.calls}
            held = sum(t.numel() * t.element_size() for call in recording.calls for t in call.tensors)
            self._sample_bytes = max(
                self._sample_bytes, (2 * held + 4 * sum(x.nbytes for x in found.layers.values())) // _TRIAL, 1
            )
        return [site for site in self._sites if wrong & set(site.own.values())]

    def _alone(
        self, sample: Batch, values: dict[str, Tensor], buffers: dict[str, Tensor], back: Tensor
    ) -> dict[str, Tensor]:
        """The gradient of one sample by plain autograd, the sample alone in its batch."""
        leaves = {name: value.detach().clone().requires_grad_() for name, value in values.items()}
        outputs, _ = self._ask(leaves, buffers, sample)
        if not outputs.requires_grad:
            return {name: torch.zeros_like(leaf) for name, leaf in leaves.items()}
        found = torch.autograd.grad(outputs, list(leaves.values()), back, allow_unused=True)
        pairs = zip(leaves.items(), found, strict=True)
        return {name: torch.zeros_like(leaf) if g is None else g for (name, leaf), g in pairs}

    # Going it

    def _ask(self, values: dict[str, Tensor], buffers: dict[str, Tensor], batch: Batch) -> tuple[Tensor, Tensor | None]:
        state = {f"model.{name}": value for name, value in (buffers | values).items()}
        return torch.func.functional_call(self._whole, state, (batch,))  # type: ignore[no-any-return]

    def _record(self, values: dict[str, Tensor], buffers: dict[str, Tensor], batch: Batch, lead: int) -> _Recording:
        if lead == 0:
            with Taps(self._sites) as taps:
                outputs, targets = self._ask(values, buffers, batch)
            return _Recording(outputs, targets, taps.calls, values, buffers, lead)
        return self._record_replicas(values, buffers, batch, lead)

    def _record_replicas(
        self, values: dict[str, Tensor], buffers: dict[str, Tensor], batch: Batch, lead: int
    ) -> _Recording:
        """Ask all replicas at once under `vmap`; the first one, asked alone, tells the shapes of the zeros."""
        replicas = next(iter(values.values())).shape[:lead]
        first = self._record(
            {name: value[(0,) * lead] for name, value in values.items()}, buffers, _first_replica(batch, lead), 0
        )
        zeros = [
            torch.zeros((), dtype=zero.dtype, device=zero.device, requires_grad=True).expand(*replicas, *zero.shape)
            for call in first.calls
            for zero in call.zeros
        ]

        def ask(values: dict[str, Tensor], zeros: list[Tensor], tensors: list[Tensor]) -> tuple[Any, ...]:
            given = iter(tensors)
            with Taps(self._sites, zeros) as taps:
                outputs, targets = self._ask(values, buffers, map_tensors(lambda _: next(given), batch))
            return outputs, () if targets is None else targets, [call.records for call in taps.calls]

        for _ in range(lead):
            ask = torch.func.vmap(ask)
        try:
            outputs, targets, records = ask(values, zeros, tensors_of(batch))
        except torch.OutOfMemoryError:
            raise
        except RuntimeError as failure:
            raise RuntimeError(
                f"{type(self.model).__name__} cannot be asked for {replicas.numel()} replicas at once, because torch.func.vmap "
                f"cannot take it: {failure} Ask the replicas one by one."
            ) from failure
        supply = iter(zeros)
        calls = [
            Call(call.site, call.form, kept, tuple(next(supply) for _ in call.zeros))
            for call, kept in zip(first.calls, records, strict=True)
        ]
        return _Recording(outputs, None if isinstance(targets, tuple) else targets, calls, values, buffers, lead)

    def _pull(self, recording: _Recording, back: Tensor) -> SampleGradients:
        """Send a signal back from the outputs and turn what reaches each site into gradients."""
        zeros = [zero for call in recording.calls for zero in call.zeros]
        if not recording.outputs.requires_grad:
            return SampleGradients(self.layout, {}, recording.count)
        found = iter(torch.autograd.grad(recording.outputs, zeros, back, retain_graph=True, allow_unused=True))
        reached: dict[int, list[tuple[Call, list[Tensor]]]] = {}
        for call in recording.calls:
            arrived = [next(found) for _ in call.zeros]
            if any(signal is not None for signal in arrived):
                full = [torch.zeros_like(z) if s is None else s for z, s in zip(call.zeros, arrived, strict=True)]
                reached.setdefault(id(call.site), []).append((call, full))
        owners: dict[str, int] = {}
        for site in self._sites:
            for name in site.own.values():
                owners[name] = owners.get(name, 0) + 1
        layers: dict[tuple[str, ...], LayerGradients] = {}
        for site in self._sites:
            if id(site) in reached:
                tied = any(owners[name] > 1 for name in site.own.values())
                try:
                    self._add_site(layers, site, reached[id(site)], recording, tied)
                except Unsupported as failure:
                    raise _SiteUnsupported(site) from failure
        return SampleGradients(self.layout, layers, recording.count)

    def _add_site(
        self,
        layers: dict[tuple[str, ...], LayerGradients],
        site: Site,
        calls: list[tuple[Call, list[Tensor]]],
        recording: _Recording,
        tied: bool,
    ) -> None:
        lead, n = recording.lead, recording.count
        if isinstance(site.rule, LinearRule) and "weight" in site.own and not tied:
            a, d = linear_factors([(call, arrived[0]) for call, arrived in calls], lead, n)
            if a.shape[-2] * (a.shape[-1] + d.shape[-1]) <= a.shape[-1] * d.shape[-1]:
                layers[tuple(site.own.values())] = LinearGradients(a, d, bias="bias" in site.own)
                return
        total: dict[str, Tensor] = {}
        for call, arrived in calls:
            for local, value in self._call_gradients(call, arrived, recording).items():
                if local in site.own:
                    name = site.own[local]
                    flat = value.flatten(lead + 1)
                    total[name] = total[name] + flat if name in total else flat
        if not tied:
            names = [name for name in self.layout.names if name in total]
            layers[tuple(names)] = DenseGradients(torch.cat([total[name] for name in names], -1))
            return
        for name, value in total.items():
            other = layers.get((name,))
            layers[(name,)] = DenseGradients(value + other.g if isinstance(other, DenseGradients) else value)

    def _call_gradients(self, call: Call, arrived: list[Tensor], recording: _Recording) -> dict[str, Tensor]:
        if call.site.rule is not None:
            return rule_gradients(call, arrived[0], recording.lead, recording.count)
        names = {p: name for name, p in self.model.named_parameters()}
        module = call.site.module
        values = {
            local: recording.values[names[p]] for local, p in module.named_parameters() if names[p] in recording.values
        }
        buffers = {local: recording.buffers[name] for local, name in self._buffer_names(module).items()}
        return automatic_gradients(call, arrived, values, buffers, recording.lead, recording.count)

    def _buffer_names(self, module: nn.Module) -> dict[str, str]:
        names = {id(buffer): name for name, buffer in self.model.named_buffers()}
        return {local: names[id(buffer)] for local, buffer in module.named_buffers() if id(buffer) in names}


class _SiteUnsupported(Exception):
    def __init__(self, site: Site) -> None:
        super().__init__(site.path)
        self.site = site


def _cast(tensor: Tensor, dtype: torch.dtype | None) -> Tensor:
    return tensor.to(dtype) if dtype is not None and tensor.is_floating_point() else tensor


def _first_replica(batch: Batch, lead: int) -> Batch:
    return map_tensors(lambda t: t[(0,) * lead], batch)
