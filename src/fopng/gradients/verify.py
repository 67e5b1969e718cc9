"""Check per-sample gradients against plain autograd on a few samples, parameter by parameter."""

from math import isfinite

import torch
from torch import Tensor

from fopng.core.batch import Batch, NotFinite, map_tensors, sample_count, take
from fopng.core.layout import ParamLayout
from fopng.core.tree import tensors_in
from fopng.gradients.axes import Axes, Way, find_axes, way_of
from fopng.gradients.backward import Gradients, Knowledge, arrivals, total_gradients
from fopng.gradients.capture import SiteCall
from fopng.gradients.layers import LinearGradients, SampleGradients
from fopng.gradients.rules import ConvRule, TransposedConvRule, Unsupported, check_module
from fopng.gradients.tracing import ForwardTrace, State, TracedModel

TRIAL = 5
"""Samples of the trial batch: few, and rarely the size of another axis."""


class Verifier:
    """Proves the closed forms of a model's uses of its parameters on small batches.

    A parameter's gradient of one sample of a small batch is compared with that of the same sample alone. One that does not agree,
    since it is also used in a way that has no closed form, is differentiated through the whole model; the others keep theirs.

    Args:
        model: the model.
        layout: the parameters to differentiate.

    Attributes:
        knowledge: what was found.
        gradients: the gradients by it.
        sample_bytes: the memory that one more sample takes.
    """

    def __init__(self, model: TracedModel, layout: ParamLayout) -> None:
        self._model, self._layout = model, layout
        self.knowledge = Knowledge()
        self.gradients = Gradients(model, layout, self.knowledge)
        self.sample_bytes = 0
        for path, module in model.named_modules():
            check_module(path.removeprefix("model."), module)

    def holds(self, trace: ForwardTrace) -> bool:
        """Whether all that happened has been verified."""
        return trace.touched <= self.knowledge.known and not self._doubtful(trace)

    def give_up(self, trace: ForwardTrace) -> None:
        """Do without closed forms where samples are not where they were: an operation may be sent a part of them."""
        self.knowledge.known |= trace.touched
        self.knowledge.alone |= self._doubtful(trace)

    def _doubtful(self, trace: ForwardTrace) -> set[str]:
        known, lead, n = self.knowledge, trace.lead, trace.count
        found: set[str] = set()
        for call in trace.calls:
            if known.axes_of(call, lead, n) is None:
                found.update(call.site.names)
        return found - known.alone

    def verify(self, batch: Batch, values: State, given: ForwardTrace | None = None) -> None:
        """Compare one sample of a small batch with plain autograd, until all parameters agree.

        Args:
            batch: samples to take the small batch of.
            values: the parameters.
            given: what was recorded of the whole batch.
        """
        n = sample_count(batch)
        if n == 0:
            raise ValueError("Expected a batch with samples, got an empty one.")
        trial = take(batch, torch.arange(TRIAL) * n // TRIAL)
        device = next(iter(values.values())).device
        exact: torch.dtype | None = torch.float64 if device.type != "mps" else torch.float32
        try:
            self._agree(trial, values, given, exact, tolerance=1e-6)
        except (RuntimeError, TypeError):
            # the model insists on its own precision, where a kink may fall to either side
            self._agree(trial, values, given, None, tolerance=5e-2)

    def _agree(
        self, trial: Batch, values: State, given: ForwardTrace | None, dtype: torch.dtype | None, tolerance: float
    ) -> None:
        rest = self._model.rest(self._layout)
        values, rest, trial = (map_tensors(lambda t: _cast(t, dtype), x) for x in (values, rest, trial))
        trace = self._model.trace(values, rest, trial, 0)
        known = self.knowledge
        choices = self._choices(trace, given)
        noise = torch.Generator().manual_seed(0)
        cotangent = torch.randn(trace.outputs.shape, generator=noise).to(trace.outputs)
        alone, expected = self._alone(take(trial, torch.tensor([TRIAL - 1])), values, rest, cotangent[-1:])
        self._check_independence(trace.outputs[-1:].detach(), alone.detach(), tolerance)
        known.alone |= self._without_axes(trace)
        while (wrong := self._wrong(trace, cotangent, expected, tolerance)) and self._other_axes(trace, choices, wrong):
            pass
        known.alone |= wrong
        if wrong and (still := self._wrong(trace, cotangent, expected, tolerance)):
            raise ValueError(
                f"Per-sample gradients of {self._model_name} cannot be found: those of {sorted(still)} for one sample alone, "
                "differentiated through the whole model, disagree with autograd. Is the model random in eval mode? Make it "
                "deterministic."
            )
        self._check_totals(trace, cotangent, values, rest, trial, tolerance)
        known.known |= trace.touched

    def _choices(self, trace: ForwardTrace, given: ForwardTrace | None) -> dict[Way, list[Axes]]:
        """Where the samples may be in each way of using a parameter, in the trial and in the batch that asked for it."""
        found: dict[Way, list[Axes]] = {}
        for call in trace.calls:
            found.setdefault(way_of(call, 0), find_axes(call, TRIAL))
        if given is not None:
            for call in given.calls:
                way, new = way_of(call, given.lead), _possible(call, given)
                old = found.get(way, [])
                found |= {way: [axes for axes in old if axes in new] or old} if old else {}
        self.knowledge.axes.update({way: choices.pop(0) for way, choices in found.items()})
        return found

    def _other_axes(self, trace: ForwardTrace, choices: dict[Way, list[Axes]], wrong: set[str]) -> bool:
        """Try the next place for the samples where gradients are wrong; False where there is none left."""
        ways = {way_of(call, 0) for call in trace.calls if wrong & set(call.site.names)}
        left = [way for way in ways if choices[way]]
        self.knowledge.axes.update({way: choices[way].pop(0) for way in left})
        return bool(left)

    def _without_axes(self, trace: ForwardTrace) -> set[str]:
        """Parameters in calls that have no axis of samples."""
        known = self.knowledge
        calls = [call for call in trace.calls if known.axes_of(call, 0, trace.count) is None]
        return {name for call in calls for name in call.site.names}

    def _wrong(self, trace: ForwardTrace, cotangent: Tensor, expected: State, tolerance: float) -> set[str]:
        """The parameters whose gradient of the last sample is not the expected one."""
        try:
            found = self.gradients.of_samples(trace, cotangent)
        except Unsupported as failure:
            if failure.args:
                raise ValueError(
                    f"Per-sample gradients of {self._model_name} cannot be found: one sample alone, differentiated "
                    f"through the whole model, fails: {failure} Let the model answer a batch of one."
                ) from failure
            # a form that does not fit: all of its kind go through the model
            return self._unsupported(trace, cotangent)
        self.sample_bytes = max(self.sample_bytes, self._itemsize * _numbers_held(trace, found) // TRIAL, 1)
        last = {names: layer.select(torch.tensor([TRIAL - 1])) for names, layer in found.layers.items()}
        rows = SampleGradients(last, 1).rows().parts
        actual = {name: rows[name][0] for name in rows}
        return differing(actual, expected, tolerance)

    def _unsupported(self, trace: ForwardTrace, cotangent: Tensor) -> set[str]:
        return {name for call, _ in arrivals(trace, cotangent) for name in self.gradients.unsupported(call, trace)}

    def _check_totals(
        self, trace: ForwardTrace, cotangent: Tensor, values: State, rest: State, trial: Batch, tolerance: float
    ) -> None:
        """Find the parameters without per-sample gradients of their own whose uses are all captured nevertheless."""
        known = self.knowledge
        if known.alone & trace.touched:
            found = total_gradients(arrivals(trace, cotangent))
            _, expected = self._alone(trial, values, rest, cotangent)
            wrong = differing(found, expected, tolerance) | _mixing(trace, cotangent)
            known.summed = (known.summed | (known.alone & found.keys())) - wrong

    def _check_independence(self, among: Tensor, alone: Tensor, tolerance: float) -> None:
        """Raise where a sample is answered otherwise among others than alone: it has no gradient of its own."""
        if bool(alone.isfinite().all()) and not torch.allclose(
            among, alone, rtol=tolerance, atol=tolerance * float(alone.abs().max())
        ):
            raise ValueError(
                f"Per-sample gradients of {self._model_name} cannot be found: it answers a sample differently among others "
                "than alone. Is it random in eval mode, or does it normalise over the batch? Make it deterministic, sample by "
                "sample."
            )

    def _alone(self, sample: Batch, values: State, rest: State, cotangent: Tensor) -> tuple[Tensor, State]:
        """The outputs for samples and their gradient by plain autograd: the sum over these samples."""
        leaves = {name: value.detach().clone().requires_grad_() for name, value in values.items()}
        sample = map_tensors(torch.clone, sample)
        outputs, _ = self._model.run(leaves, {name: own.clone() for name, own in rest.items()}, sample)
        if not outputs.requires_grad:
            return outputs, {name: torch.zeros_like(leaf) for name, leaf in leaves.items()}
        found = torch.autograd.grad(outputs, list(leaves.values()), cotangent, allow_unused=True)
        pairs = zip(leaves.items(), found, strict=True)
        # an embedding may give sparse ones
        return outputs, {name: torch.zeros_like(leaf) if g is None else g.to_dense() for (name, leaf), g in pairs}

    @property
    def _itemsize(self) -> int:
        """Bytes of a number: gradients of half precision are kept in single."""
        return max(4, *(p.element_size() for p in self._model.model.parameters()))

    @property
    def _model_name(self) -> str:
        return type(self._model.model).__name__


def differing(actual: State, expected: State, tolerance: float) -> set[str]:
    """The parameters whose gradient is not the expected one; one that is absent is zero."""
    expected = {name: e for name, e in expected.items() if e.numel()}
    scales = {name: float(e.abs().max()) for name, e in expected.items()}
    broken = [name for name, scale in scales.items() if not isfinite(scale)]
    if broken:
        raise NotFinite(
            f"Expected finite gradients, got NaN or infinity in {broken}. Has the training diverged, or the data a NaN?"
        )
    # each parameter by its own scale, but for rounding: one that is small must be right, too
    floor = max(scales.values()) * (1e-10 if tolerance < 1e-3 else tolerance)
    return {
        name
        for name, e in expected.items()
        if not torch.allclose(
            actual[name].to(e) if name in actual else torch.zeros_like(e),
            e,
            rtol=tolerance,
            atol=max(tolerance * scales[name], floor),
        )
    }


def _possible(call: SiteCall, trace: ForwardTrace) -> list[Axes]:
    """Where the samples may be in a call."""
    if not trace.lead:
        return find_axes(call, trace.count)
    first = (0,) * trace.lead
    return find_axes(SiteCall(call.site, call.record[first], call.zero[first]), trace.count)


def _mixing(trace: ForwardTrace, cotangent: Tensor) -> set[str]:
    """The parameters in uses whose positions belong to more than one sample."""
    last = torch.zeros_like(cotangent)
    last[-1] = cotangent[-1]
    pairs = [[_reached(call, signal) for call, signal in arrivals(trace, own)] for own in (last, cotangent - last)]
    reached = {id(call): rows for call, rows in pairs[0]}
    return {
        name
        for call, rows in pairs[1]
        if id(call) in reached and bool((reached[id(call)] & rows).any())
        for name in call.site.names
    }


def _reached(call: SiteCall, signal: Tensor) -> tuple[SiteCall, Tensor]:
    """The positions of a call to which anything comes back."""
    if isinstance(call.site.rule, ConvRule | TransposedConvRule):
        return call, (signal != 0).flatten(1).any(-1)
    return call, (signal != 0).any(-1)


def _numbers_held(trace: ForwardTrace, found: SampleGradients) -> int:
    """How many numbers are alive at a time: activations and signals, gradients and their squares, and what a rule writes."""
    held = sum(t.numel() for call in trace.calls for t in call.tensors)
    stored = sum(t.numel() for layer in found.layers.values() for t in tensors_in(layer))
    sequences = [layer for layer in found.layers.values() if isinstance(layer, LinearGradients) and layer.positions > 1]
    dense = TRIAL * sum(shape.numel() for layer in sequences for shape in layer.shapes)
    beside = max((call.site.rule.workspace(call.record, call.zero) for call in trace.calls), default=0)
    return 2 * held + 3 * stored + 2 * dense + beside


def _cast(tensor: Tensor, dtype: torch.dtype | None) -> Tensor:
    return tensor.to(dtype) if dtype is not None and tensor.is_floating_point() else tensor
