"""Per-sample gradients of any model: how a model, a batch and a score give them."""

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from fopng.core.batch import Batch, Predict, map_tensors, predict_pairs, sample_count, take
from fopng.core.layout import ParamLayout
from fopng.core.likelihood import Categorical, Generators, Labels, Likelihood, Norm, Score, Signals, signals
from fopng.core.vector import Vector
from fopng.gradients.layers import LayerGradients, Names, SampleGradients
from fopng.gradients.tracing import ForwardTrace, TracedModel, first_replica, first_replica_of, undisturbed
from fopng.gradients.uses import Use
from fopng.gradients.verify import TRIAL, Verifier


class PerSampleGradients:
    """A model that gives the gradient of each sample.

    A parameter that reaches a linear layer, a convolution, a table, a normalisation, whoever calls it, has a closed form. All other
    parameters are differentiated through the whole model, sample by sample, with `torch.func`. The first batch (and any that takes
    another way through the model) is checked on a few samples against plain autograd, one sample alone.

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
        self._verifier = Verifier(self._traced, self.layout)

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
                gradients = self._verifier.gradients.of_samples(trace, cotangent)
            yield gradients

    def answers(self, batch: Batch, *, parameters: Vector | None = None) -> tuple[Tensor, Tensor | None]:
        """Run the model, dropout off: outputs `[*lead, n, ...]` and the targets.

        Args:
            batch: the samples, `[*lead, n, ...]`.
            parameters: those of replicas, `[*lead, *shape]`; None for the model's own.
        """
        with undisturbed(self.model), torch.no_grad():
            values, rest = self._traced.values(self.layout, parameters), self._traced.rest(self.layout)
            return self._traced.answer(values, rest, batch, _axes(parameters))

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
        *,
        parameters: Vector | None = None,
        generator: Generators = None,
    ) -> Iterator[tuple[list[Use], dict[Names, LayerGradients]]]:
        """Yield, for each signal, both factors of every weight that has some, and the gradients of everything else.

        Args:
            batch: the samples, `[*lead, n, ...]`.
            kind: which derivatives at the outputs are used.
            parameters: those of replicas, `[*lead, *shape]`; None for the model's own.
            generator: draws labels and noise; one for all, or one for each replica.
        """
        trace = self._verified_trace(batch, parameters)
        for cotangent in self._cotangents(trace, kind, generator):
            with undisturbed(self.model):
                found = self._verifier.gradients.factors(trace, cotangent)
            yield found

    def inputs(self, batch: Batch, *, parameters: Vector | None = None) -> list[Use]:
        """What every weight that has factors was multiplied with.

        Args:
            batch: the samples, `[*lead, n, ...]`; a weight that they do not reach is left out.
            parameters: those of replicas, `[*lead, *shape]`; None for the model's own.
        """
        trace = self._verified_trace(batch, parameters)
        return list(self._verifier.gradients.uses(trace, [(call, None) for call in trace.calls]))

    def bytes_per_sample(self, batch: Batch, parameters: Vector | None = None) -> int:
        """How much memory the gradients of one more sample take, measured on a few."""
        axes = _axes(parameters)
        few = torch.arange(min(TRIAL, sample_count(batch, axes)))
        self._verified_trace(take(batch, few, axes), parameters)
        return self._verifier.sample_bytes * (1 if parameters is None else parameters.replicas.numel())

    def _cotangents(
        self, trace: ForwardTrace, kind: Labels | Score | Norm | Signals, generator: Generators
    ) -> Iterator[Tensor]:
        """The derivatives of the scores at the outputs of a trace."""
        outputs, targets = trace.outputs, trace.targets
        return signals(self.likelihood, kind, outputs, targets, axes=trace.lead + 1, generator=generator)

    def _verified_trace(self, batch: Batch, parameters: Vector | None) -> ForwardTrace:
        """Trace a batch, once every way that it takes through the model is verified."""
        axes, verifier = _axes(parameters), self._verifier
        with undisturbed(self.model):
            values = self._traced.values(self.layout, parameters)
            trace = self._traced.trace(values, self._traced.rest(self.layout), batch, axes)
            if not verifier.holds(trace):
                verifier.verify(first_replica(batch, axes), first_replica_of(values, axes), trace)
                # a few samples need not go everywhere that the batch goes (experts)
                verifier.give_up(trace)
            return trace


def _axes(parameters: Vector | None) -> int:
    """How many leading axes number replicas."""
    return 0 if parameters is None else parameters.lead
