"""Per-sample gradients of any model: how a model, a batch and a score give them."""

from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn

from fopng.core.batch import Batch, Predict, map_tensors, predict_pairs, sample_count, take
from fopng.core.layout import ParamLayout
from fopng.core.likelihood import Categorical, Generators, Labels, Likelihood, Norm, Score, Signals, signals
from fopng.core.vector import Vector
from fopng.gradients.backward import factored_modules, layer_factors, layer_gradients
from fopng.gradients.hooks import layer_inputs
from fopng.gradients.layers import LayerGradients, Names, SampleGradients
from fopng.gradients.tracing import ForwardTrace, TracedModel, first_replica, undisturbed
from fopng.gradients.verify import TRIAL, VerifiedModules

See = Callable[[int, Names, LayerGradients], None]
"""Is given the gradients of one layer: the number of the signal, the layer, its gradients."""


class PerSampleGradients:
    """A model that gives the gradient of each sample.

    Layers with a closed form use it; every other module that owns parameters is differentiated sample by sample with
    `torch.func`. The first batch (and any that takes another way through the model) is checked on a few samples against plain
    autograd, one sample alone: a module that does not agree is replaced by the module around it, up to the whole model.

    Args:
        model: any module; its trainable parameters are differentiated.
        predict: how it answers a batch; `model(x)` on `(x, y)` by default.
        likelihood: what its outputs mean.
        layout: the parameters to differentiate; the trainable ones by default.

    >>> source = PerSampleGradients(nn.Linear(3, 2))
    >>> batch = torch.ones(4, 3), torch.tensor([0, 1, 1, 0])
    >>> [g.rows()["weight"].shape for g in source.gradients(batch, "ground-truth")]
    [torch.Size([4, 2, 3])]
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
        self._traced = TracedModel(model, predict)
        self._verified = VerifiedModules(self._traced, self.layout)

    def gradients(
        self,
        batch: Batch,
        kind: Labels | Score | Norm,
        *,
        parameters: Vector | None = None,
        generator: Generators = None,
    ) -> Iterator[SampleGradients]:
        """Yield the gradients of every sample; more than once only for "expected" labels, whose squares add up.

        Args:
            batch: the samples, `[*lead, n, ...]`.
            kind: of which score, or with which labels of the log-likelihood.
            parameters: those of replicas, `[*lead, *shape]`; None for the model's own.
            generator: draws "sampled" labels; one for all, or one for each replica.
        """
        trace = self._verified_trace(batch, parameters)
        for cotangent in self._cotangents(trace, kind, generator):
            with undisturbed(self.model):
                gradients = layer_gradients(self._traced, self.layout, self._verified.modules, trace, cotangent)
            yield gradients

    def answers(self, batch: Batch, *, parameters: Vector | None = None) -> tuple[Tensor, Tensor | None]:
        """Run the model, dropout off: outputs `[*lead, n, ...]` and the targets.

        Args:
            batch: the samples, `[*lead, n, ...]`.
            parameters: those of replicas, `[*lead, *shape]`; None for the model's own.
        """
        with undisturbed(self.model), torch.no_grad():
            values, rest = self._traced.values(self.layout, parameters), self._traced.rest(self.layout)
            trace = self._traced.trace([], values, rest, batch, _axes(parameters))
        return trace.outputs, trace.targets

    def path(self, batch: Batch) -> list[str]:
        """Name the parameters of the layout that a batch is answered through."""
        with undisturbed(self.model):
            values = {name: p.requires_grad_() for name, p in self._traced.values(self.layout, None).items()}
            outputs, _ = self._traced.run(values, self._traced.rest(self.layout), map_tensors(torch.clone, batch))
            if not outputs.requires_grad:
                return []
            ones = torch.ones_like(outputs)
            found = torch.autograd.grad(outputs, list(values.values()), ones, allow_unused=True)
        return [name for name, gradient in zip(values, found, strict=True) if gradient is not None]

    def factors(
        self,
        batch: Batch,
        kind: Labels | Signals,
        see: See,
        *,
        parameters: Vector | None = None,
        generator: Generators = None,
    ) -> None:
        """Hand over the gradients of every sample, layer by layer: those of Linear and Conv layers as both factors, however large.

        The weight of a convolution counts as the matrix `[o, i]` that multiplies its patches.

        Args:
            batch: the samples, `[*lead, n, ...]`.
            kind: which derivatives at the outputs are used.
            see: called for every layer, once for each of those; what it does not keep is freed.
            parameters: those of replicas, `[*lead, *shape]`; None for the model's own.
            generator: draws labels and noise; one for all, or one for each replica.
        """
        trace = self._verified_trace(batch, parameters)
        for number, cotangent in enumerate(self._cotangents(trace, kind, generator)):
            with undisturbed(self.model):
                for names, layer in layer_factors(self._traced, self._verified.modules, trace, cotangent):
                    see(number, names, layer)

    def inputs(self, batch: Batch, *, parameters: Vector | None = None) -> Iterator[tuple[Names, Tensor, bool]]:
        """Yield what every Linear and Conv layer was given: its parameters, `a [*lead, n, t, i]`, whether it has a bias.

        Args:
            batch: the samples, `[*lead, n, ...]`; a layer that they do not reach is left out.
            parameters: those of replicas, `[*lead, *shape]`; None for the model's own.
        """
        trace = self._verified_trace(batch, parameters)
        for names, module in factored_modules(self._verified.modules).items():
            calls = [call for call in trace.calls if call.module is module]
            if calls:
                yield names, layer_inputs(calls, trace.lead, trace.count), "bias" in module.own

    def bytes_per_sample(self, batch: Batch, parameters: Vector | None = None) -> int:
        """How much memory the gradients of one more sample take, measured on a few."""
        axes = _axes(parameters)
        few = torch.arange(min(TRIAL, sample_count(batch, axes)))
        self._verified_trace(take(batch, few, axes), parameters)
        return self._verified.sample_bytes * (1 if parameters is None else parameters.replicas.numel())

    def _cotangents(
        self, trace: ForwardTrace, kind: Labels | Score | Norm | Signals, generator: Generators
    ) -> Iterator[Tensor]:
        """The derivatives of the scores at the outputs of a trace."""
        outputs, targets = trace.outputs, trace.targets
        return signals(self.likelihood, kind, outputs, targets, axes=trace.lead + 1, generator=generator)

    def _verified_trace(self, batch: Batch, parameters: Vector | None) -> ForwardTrace:
        """Trace a batch, once every way that it takes through the model is verified."""
        axes, verified = _axes(parameters), self._verified
        with undisturbed(self.model):
            values = self._traced.values(self.layout, parameters)
            while True:
                rest = self._traced.rest(self.layout)
                trace = self._traced.trace(verified.modules, values, rest, batch, axes)
                if verified.complete and not verified.unverified(trace):
                    return trace
                verified.verify(first_replica(batch, axes), first_replica(values, axes))
                # a few samples need not go everywhere that the batch goes (experts): the module around goes wherever they do
                for module in verified.unverified(trace):
                    verified.fall_back_to_parent(module)


def _axes(parameters: Vector | None) -> int:
    """How many leading axes number replicas."""
    return 0 if parameters is None else parameters.lead
