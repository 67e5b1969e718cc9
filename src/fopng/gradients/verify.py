"""Check per-sample gradients against plain autograd on a few samples, and fall back to the parent module where they disagree."""

from math import isfinite

import torch
from torch import Tensor, nn

from fopng.core.batch import Batch, NotFinite, map_tensors, sample_count, take
from fopng.core.layout import ParamLayout
from fopng.core.tree import tensors_in
from fopng.gradients.backward import ModuleUnsupported, layer_gradients
from fopng.gradients.hooks import TracedModule, axes_fit, axes_key, find_axes
from fopng.gradients.layers import LinearGradients, SampleGradients
from fopng.gradients.rules import check_module, rule_for
from fopng.gradients.tracing import ForwardTrace, State, TracedModel

TRIAL = 5
"""Samples of the trial batch: few, and rarely the size of another axis."""

Way = tuple[str, tuple[int, ...]]
"""A module and a way of calling it."""


class VerifiedModules:
    """The modules of a model at which gradients are taken, each checked against plain autograd.

    A module is compared on one sample of a small batch with the same sample alone. One that does not agree is replaced by the
    module around it, up to the whole model.

    Args:
        model: the model.
        layout: the parameters to differentiate.

    Attributes:
        modules: the modules, at the moment.
        complete: whether they have been verified since the last change.
        sample_bytes: the memory that one more sample takes.
    """

    def __init__(self, model: TracedModel, layout: ParamLayout) -> None:
        self._model, self._layout = model, layout
        self._named = dict(model.named_modules())
        self._verified: set[Way] = set()
        self.modules = self._first_modules()
        self.complete = False
        self.sample_bytes = 0

    def unverified(self, trace: ForwardTrace) -> list[TracedModule]:
        """The modules that were called in a way that has not been verified."""
        lead, n = trace.lead, trace.count
        doubtful = {
            id(call.module)
            for call in trace.calls
            if (call.module.path, axes_key(call, lead)) not in self._verified or not axes_fit(call, lead, n)
        }
        return [module for module in self.modules if id(module) in doubtful]

    def verify(self, batch: Batch, values: State) -> None:
        """Compare one sample of a small batch with plain autograd; fall back from modules that disagree until none does."""
        n = sample_count(batch)
        if n == 0:
            raise ValueError("Expected a batch with samples, got an empty one.")
        trial = take(batch, torch.arange(TRIAL) * n // TRIAL)
        device = next(iter(values.values())).device
        exact: torch.dtype | None = torch.float64 if device.type != "mps" else torch.float32
        wrong: list[TracedModule] | None = None
        while wrong is None or wrong:
            for module in wrong or []:
                self.fall_back_to_parent(module)
            try:
                wrong = self._disagreeing(trial, values, exact, tolerance=1e-6)
            except (RuntimeError, TypeError):
                if exact is None:
                    raise
                exact = None
            if exact is None:
                # the model insists on its own precision, where a kink may fall to either side
                wrong = self._disagreeing(trial, values, None, tolerance=5e-2)
        self.complete = True

    def fall_back_to_parent(self, module: TracedModule) -> None:
        """Replace a module, and all others with the same parent, by the parent."""
        if module not in self.modules:
            return
        if module.path == "":
            raise ValueError(
                f"Per-sample gradients of {self._model_name} cannot be found: even one sample alone, differentiated "
                "through the whole model, disagrees with autograd. Is the model random in eval mode? Make it deterministic."
            )
        path = module.path.rpartition(".")[0]
        parent = self._named[path]
        inside = {id(child) for child in parent.modules()}
        self.modules = [own for own in self.modules if id(own.module) not in inside]
        self.modules.append(TracedModule(path, parent, self._own(parent, recurse=True), None))
        self.complete = False

    @property
    def _itemsize(self) -> int:
        """Bytes of a number: gradients of half precision are kept in single."""
        return max(4, *(p.element_size() for p in self._model.model.parameters()))

    @property
    def _model_name(self) -> str:
        return type(self._model.model).__name__

    def _first_modules(self) -> list[TracedModule]:
        """Every module that owns parameters to differentiate, with its rule."""
        found = []
        for path, module in self._named.items():
            check_module(path.removeprefix("model."), module)
            own = self._own(module, recurse=False)
            if own:
                found.append(TracedModule(path, module, own, rule_for(module)))
        return found

    def _own(self, module: nn.Module, *, recurse: bool) -> dict[str, str]:
        names = {p: name for name, p in self._model.model.named_parameters() if name in self._layout.shapes}
        return {local: names[p] for local, p in module.named_parameters(recurse=recurse) if p in names}

    def _disagreeing(
        self, trial: Batch, values: State, dtype: torch.dtype | None, tolerance: float
    ) -> list[TracedModule]:
        rest = self._model.rest(self._layout)
        values, rest, trial = (map_tensors(lambda t: _cast(t, dtype), x) for x in (values, rest, trial))
        trace = self._model.trace(self.modules, values, rest, trial, 0)
        for call in trace.calls:
            find_axes(call, TRIAL)
        noise = torch.Generator().manual_seed(0)
        cotangent = torch.randn(trace.outputs.shape, generator=noise).to(trace.outputs)
        try:
            found = layer_gradients(self._model, self._layout, self.modules, trace, cotangent)
        except ModuleUnsupported as failure:
            if failure.module.path == "":
                raise ValueError(
                    f"Per-sample gradients of {self._model_name} cannot be found: one sample alone, differentiated "
                    f"through the whole model, fails: {failure.__cause__}. Let the model answer a batch of one."
                ) from failure
            return [failure.module]
        alone, expected = self._alone(take(trial, torch.tensor([TRIAL - 1])), values, rest, cotangent[-1:])
        self._check_independence(trace.outputs[-1:].detach(), alone.detach(), tolerance)
        wrong = self._wrong(found, expected, tolerance)
        if not wrong:
            self._verified |= {(call.module.path, axes_key(call, 0)) for call in trace.calls}
            self.sample_bytes = max(self.sample_bytes, self._itemsize * _numbers_held(trace, found) // TRIAL, 1)
        return [module for module in self.modules if wrong & set(module.own.values())]

    def _wrong(self, found: SampleGradients, expected: State, tolerance: float) -> set[str]:
        """The parameters whose gradient of the last sample is not the expected one."""
        expected = {name: e for name, e in expected.items() if e.numel()}
        scales = {name: float(e.abs().max()) for name, e in expected.items()}
        broken = [name for name, scale in scales.items() if not isfinite(scale)]
        if broken:
            raise NotFinite(
                f"Expected finite gradients, got NaN or infinity in {broken}. Has the training diverged, or the data a NaN?"
            )
        last = {names: layer.select(torch.tensor([TRIAL - 1])) for names, layer in found.layers.items()}
        rows = SampleGradients(last, 1).rows().parts
        actual = {name: rows[name][0].to(e) if name in rows else torch.zeros_like(e) for name, e in expected.items()}
        # each parameter by its own scale, but for rounding: one that is small must be right, too
        floor = max(scales.values()) * (1e-10 if tolerance < 1e-3 else tolerance)
        return {
            name
            for name, e in expected.items()
            if not torch.allclose(actual[name], e, rtol=tolerance, atol=max(tolerance * scales[name], floor))
        }

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
        """The outputs for one sample and their gradient by plain autograd, the sample alone in its batch."""
        leaves = {name: value.detach().clone().requires_grad_() for name, value in values.items()}
        outputs, _ = self._model.run(leaves, rest, sample)
        if not outputs.requires_grad:
            return outputs, {name: torch.zeros_like(leaf) for name, leaf in leaves.items()}
        found = torch.autograd.grad(outputs, list(leaves.values()), cotangent, allow_unused=True)
        pairs = zip(leaves.items(), found, strict=True)
        # an embedding may give sparse ones
        return outputs, {name: torch.zeros_like(leaf) if g is None else g.to_dense() for (name, leaf), g in pairs}


def _numbers_held(trace: ForwardTrace, found: SampleGradients) -> int:
    """How many numbers are alive at a time: activations and signals, gradients and their squares, and what a rule writes."""
    held = sum(t.numel() for call in trace.calls for t in call.tensors)
    stored = sum(t.numel() for layer in found.layers.values() for t in tensors_in(layer))
    sequences = [layer for layer in found.layers.values() if isinstance(layer, LinearGradients) and layer.positions > 1]
    dense = TRIAL * sum(shape.numel() for layer in sequences for shape in layer.shapes)
    rules = [(call, call.module.rule) for call in trace.calls if call.module.rule is not None]
    beside = max((rule.workspace(call.module.module, call.zeros[0]) for call, rule in rules), default=0)
    return 2 * held + 3 * stored + 2 * dense + beside


def _cast(tensor: Tensor, dtype: torch.dtype | None) -> Tensor:
    return tensor.to(dtype) if dtype is not None and tensor.is_floating_point() else tensor
