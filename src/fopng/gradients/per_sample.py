"""Per-sample gradients of any model: how a model, a batch and a score give them."""

from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn

from fopng.core.batch import Batch, Predict, map_tensors, predict_pairs, sample_count, take
from fopng.core.layout import ParamLayout
from fopng.core.likelihood import Categorical, Generators, Labels, Likelihood, Norm, Score, Signals, signals
from fopng.gradients.backward import Names, factored_sites, pull, pull_factors
from fopng.gradients.hooks import layer_inputs, undisturbed
from fopng.gradients.layers import LayerGradients, SampleGradients
from fopng.gradients.tracing import Asked, Recording, first_replica
from fopng.gradients.verify import TRIAL, ProvenSites

__all__ = ["GradientSource", "SampleGradients", "See"]

See = Callable[[int, Names, LayerGradients], None]
"""Is shown the gradients of one layer: the number of the signal, the layer, its gradients."""


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
        self.model, self.predict = model, predict
        self.likelihood = Categorical() if likelihood is None else likelihood
        self.layout = ParamLayout.of(model) if layout is None else layout
        self._asked = Asked(model, predict)
        self._proof = ProvenSites(self._asked, self.layout)

    def gradients(
        self,
        batch: Batch,
        kind: Labels | Score | Norm,
        *,
        parameters: Tensor | None = None,
        generator: Generators = None,
    ) -> Iterator[SampleGradients]:
        """Yield the gradients of every sample; more than once only for "expected" labels, whose squares add up.

        Args:
            batch: the samples, `[*lead, n, ...]`.
            kind: of which score, or with which labels of the log-likelihood.
            parameters: `[*lead, p]` instead of the model's own, for replicas.
            generator: draws "sampled" labels; one for all, or one for each replica.
        """
        with undisturbed(self.model):
            recording = self._proven_recording(batch, parameters)
        outputs, targets, axes = recording.outputs, recording.targets, recording.lead + 1
        for back in signals(self.likelihood, kind, outputs, targets, axes=axes, generator=generator):
            with undisturbed(self.model):
                gradients = pull(self._asked, self.layout, self._proof.sites, recording, back)
            yield gradients

    def answers(self, batch: Batch, *, parameters: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        """Ask the model, dropout off: outputs `[*lead, n, ...]` and the targets.

        Args:
            batch: the samples, `[*lead, n, ...]`.
            parameters: `[*lead, p]` instead of the model's own, for replicas.
        """
        lead = 0 if parameters is None else parameters.dim() - 1
        with undisturbed(self.model), torch.no_grad():
            values, rest = self._asked.values(self.layout, parameters), self._asked.rest(self.layout)
            recording = self._asked.record([], values, rest, batch, lead)
        return recording.outputs, recording.targets

    def path(self, batch: Batch) -> list[str]:
        """Name the parameters of the layout that a batch is answered through."""
        with undisturbed(self.model):
            values = {name: p.requires_grad_() for name, p in self._asked.values(self.layout, None).items()}
            outputs, _ = self._asked.answer(values, self._asked.rest(self.layout), map_tensors(torch.clone, batch))
            if not outputs.requires_grad:
                return []
            ones = torch.ones_like(outputs)
            found = torch.autograd.grad(outputs, list(values.values()), ones, allow_unused=True)
        return [name for name, gradient in zip(values, found, strict=True) if gradient is not None]

    def show_factors(
        self,
        batch: Batch,
        kind: Labels | Signals,
        see: See,
        *,
        parameters: Tensor | None = None,
        generator: Generators = None,
    ) -> None:
        """Show the gradients of every sample, layer by layer: those of Linear and Conv layers as both factors, however large.

        Args:
            batch: the samples, `[*lead, n, ...]`.
            kind: what is sent back from the outputs.
            see: called for every layer, once for each signal that is sent back; what it does not keep is let go.
            parameters: `[*lead, p]` instead of the model's own, for replicas.
            generator: draws labels and noise; one for all, or one for each replica.
        """
        with undisturbed(self.model):
            recording = self._proven_recording(batch, parameters)
        outputs, targets, axes = recording.outputs, recording.targets, recording.lead + 1
        backs = signals(self.likelihood, kind, outputs, targets, axes=axes, generator=generator)
        for number, back in enumerate(backs):
            with undisturbed(self.model):
                for names, layer in pull_factors(self._asked, self.layout, self._proof.sites, recording, back):
                    see(number, names, layer)

    def inputs(self, batch: Batch, *, parameters: Tensor | None = None) -> Iterator[tuple[Names, Tensor, bool]]:
        """Yield what every Linear and Conv layer was given: its parameters, `a [*lead, n, t, i]`, whether it has a bias.

        Args:
            batch: the samples, `[*lead, n, ...]`; a layer that they do not reach is left out.
            parameters: `[*lead, p]` instead of the model's own, for replicas.
        """
        with undisturbed(self.model):
            recording = self._proven_recording(batch, parameters)
        for names, site in factored_sites(self.layout, self._proof.sites).items():
            calls = [call for call in recording.calls if call.site is site]
            if calls:
                yield names, layer_inputs(calls, recording.lead, recording.count), "bias" in site.own

    def bytes_per_sample(self, batch: Batch, parameters: Tensor | None = None) -> int:
        """How much memory the gradients of one more sample take, measured on a few."""
        lead = 0 if parameters is None else parameters.dim() - 1
        few = torch.arange(min(TRIAL, sample_count(batch, lead)))
        with undisturbed(self.model):
            self._proven_recording(take(batch, few, lead), parameters)
        replicas = 1 if parameters is None else parameters.shape[:-1].numel()
        return self._proof.sample_bytes * replicas

    def _proven_recording(self, batch: Batch, parameters: Tensor | None) -> Recording:
        """Record a batch, once every way that it takes through the model is proven."""
        lead = 0 if parameters is None else parameters.dim() - 1
        values = self._asked.values(self.layout, parameters)
        while True:
            rest = self._asked.rest(self.layout)
            recording = self._asked.record(self._proof.sites, values, rest, batch, lead)
            if self._proof.settled and not self._proof.unproven(recording):
                return recording
            self._proof.prove(first_replica(batch, lead), first_replica(values, lead))
            # a few samples need not go everywhere that the batch goes (experts): the module around goes wherever they do
            for site in self._proof.unproven(recording):
                self._proof.widen(site)
