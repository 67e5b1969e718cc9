"""Proving that per-sample gradients are right, on a few samples, before they are used."""

from math import isfinite

import torch
from torch import Tensor, nn

from fopng.core.batch import Batch, NotFinite, map_tensors, sample_count, take
from fopng.core.layout import ParamLayout
from fopng.gradients.backward import SiteUnsupported, pull
from fopng.gradients.hooks import Site, axes_fit, axes_key, learn_axes
from fopng.gradients.layers import LinearGradients, SampleGradients
from fopng.gradients.rules import check_module, rule_for
from fopng.gradients.tracing import Asked, Recording, State

TRIAL = 5
"""Samples of the trial batch: few, and rarely the size of another axis."""

Way = tuple[str, tuple[int, ...]]
"""A site and a way of calling it."""


class ProvenSites:
    """The modules of a model at which gradients are taken, each checked against plain autograd.

    A site is compared on one sample of a small batch with the same sample alone. One that does not agree is replaced by the module
    around it, up to the whole model.

    Args:
        asked: the model.
        layout: the parameters to differentiate.

    Attributes:
        sites: the modules, at the moment.
        settled: whether they have been proven since the last change.
        sample_bytes: the memory that one more sample takes.
    """

    def __init__(self, asked: Asked, layout: ParamLayout) -> None:
        self._asked, self._layout = asked, layout
        self._modules = dict(asked.named_modules())
        self._proven: set[Way] = set()
        self.sites = self._first_sites()
        self.settled = False
        self.sample_bytes = 0

    def unproven(self, recording: Recording) -> list[Site]:
        """The sites that were called in a way that has not been proven."""
        lead, n = recording.lead, recording.count
        doubtful = {
            id(call.site)
            for call in recording.calls
            if (call.site.path, axes_key(call, lead)) not in self._proven or not axes_fit(call, lead, n)
        }
        return [site for site in self.sites if id(site) in doubtful]

    def prove(self, batch: Batch, values: State) -> None:
        """Compare one sample of a small batch with plain autograd; widen the sites that disagree until none does."""
        n = sample_count(batch)
        if n == 0:
            raise ValueError("Expected a batch with samples, got an empty one.")
        trial = take(batch, torch.arange(TRIAL) * n // TRIAL)
        device = next(iter(values.values())).device
        exact: torch.dtype | None = torch.float64 if device.type != "mps" else torch.float32
        wrong: list[Site] | None = None
        while wrong is None or wrong:
            for site in wrong or []:
                self.widen(site)
            try:
                wrong = self._disagreeing(trial, values, exact, tolerance=1e-6)
            except (RuntimeError, TypeError):
                if exact is None:
                    raise
                exact = None
            if exact is None:
                # the model insists on its own precision, where a kink may fall to either side
                wrong = self._disagreeing(trial, values, None, tolerance=5e-2)
        self.settled = True

    def widen(self, site: Site) -> None:
        """Replace a site, and all others in the same module, by the module around it."""
        if site not in self.sites:
            return
        if site.path == "":
            raise ValueError(
                f"Per-sample gradients of {self._model_name} cannot be found: even one sample alone, differentiated "
                "through the whole model, disagrees with autograd. Is the model random in eval mode? Make it deterministic."
            )
        path = site.path.rpartition(".")[0]
        around = self._modules[path]
        inside = {id(module) for module in around.modules()}
        self.sites = [s for s in self.sites if id(s.module) not in inside]
        self.sites.append(Site(path, around, self._own(around, recurse=True), None))
        self.settled = False

    @property
    def _itemsize(self) -> int:
        """Bytes of a number: gradients of half precision are kept in single."""
        return max(4, *(p.element_size() for p in self._asked.model.parameters()))

    @property
    def _model_name(self) -> str:
        return type(self._asked.model).__name__

    def _first_sites(self) -> list[Site]:
        """Every module that owns parameters to differentiate, with its rule."""
        sites = []
        for path, module in self._modules.items():
            check_module(path.removeprefix("model."), module)
            own = self._own(module, recurse=False)
            if own:
                sites.append(Site(path, module, own, rule_for(module)))
        return sites

    def _own(self, module: nn.Module, *, recurse: bool) -> dict[str, str]:
        names = {p: name for name, p in self._asked.model.named_parameters() if name in self._layout.shapes}
        return {local: names[p] for local, p in module.named_parameters(recurse=recurse) if p in names}

    def _disagreeing(self, trial: Batch, values: State, dtype: torch.dtype | None, tolerance: float) -> list[Site]:
        rest = self._asked.rest(self._layout)
        values, rest, trial = (map_tensors(lambda t: _cast(t, dtype), x) for x in (values, rest, trial))
        recording = self._asked.record(self.sites, values, rest, trial, 0)
        for call in recording.calls:
            learn_axes(call, TRIAL)
        noise = torch.Generator().manual_seed(0)
        back = torch.randn(recording.outputs.shape, generator=noise).to(recording.outputs)
        try:
            found = pull(self._asked, self._layout, self.sites, recording, back)
        except SiteUnsupported as failure:
            if failure.site.path == "":
                raise ValueError(
                    f"Per-sample gradients of {self._model_name} cannot be found: one sample alone, differentiated "
                    f"through the whole model, fails: {failure.__cause__}. Let the model answer a batch of one."
                ) from failure
            return [failure.site]
        alone, expected = self._alone(take(trial, torch.tensor([TRIAL - 1])), values, rest, back[-1:])
        self._check_company(recording.outputs[-1:].detach(), alone.detach(), tolerance)
        wrong = self._wrong(found, expected, tolerance)
        if not wrong:
            self._proven |= {(call.site.path, axes_key(call, 0)) for call in recording.calls}
            self.sample_bytes = max(self.sample_bytes, self._itemsize * _numbers_held(recording, found) // TRIAL, 1)
        return [site for site in self.sites if wrong & set(site.own.values())]

    def _wrong(self, found: SampleGradients, expected: State, tolerance: float) -> set[str]:
        """The parameters whose gradient of the last sample is not the expected one."""
        scales = {name: float(e.abs().max()) for name, e in expected.items()}
        broken = [name for name, scale in scales.items() if not isfinite(scale)]
        if broken:
            raise NotFinite(
                f"Expected finite gradients, got NaN or infinity in {broken}. Has the training diverged, or the data a NaN?"
            )
        last = {names: layer.select(torch.tensor([TRIAL - 1])) for names, layer in found.layers.items()}
        actual = self._layout.split(SampleGradients(self._layout, last, 1).dense()[0])
        # each parameter by its own scale, but for rounding: one that is small must be right, too
        floor = max(scales.values()) * (1e-10 if tolerance < 1e-3 else tolerance)
        return {
            name
            for name, e in expected.items()
            if not torch.allclose(actual[name].to(e), e, rtol=tolerance, atol=max(tolerance * scales[name], floor))
        }

    def _check_company(self, among: Tensor, alone: Tensor, tolerance: float) -> None:
        """Raise where a sample is answered otherwise among others than alone: it has no gradient of its own."""
        if bool(alone.isfinite().all()) and not torch.allclose(
            among, alone, rtol=tolerance, atol=tolerance * float(alone.abs().max())
        ):
            raise ValueError(
                f"Per-sample gradients of {self._model_name} cannot be found: it answers a sample differently among others "
                "than alone. Is it random in eval mode, or does it normalise over the batch? Make it deterministic, sample by "
                "sample."
            )

    def _alone(self, sample: Batch, values: State, rest: State, back: Tensor) -> tuple[Tensor, State]:
        """The outputs for one sample and their gradient by plain autograd, the sample alone in its batch."""
        leaves = {name: value.detach().clone().requires_grad_() for name, value in values.items()}
        outputs, _ = self._asked.answer(leaves, rest, sample)
        if not outputs.requires_grad:
            return outputs, {name: torch.zeros_like(leaf) for name, leaf in leaves.items()}
        found = torch.autograd.grad(outputs, list(leaves.values()), back, allow_unused=True)
        pairs = zip(leaves.items(), found, strict=True)
        # an embedding may give sparse ones
        return outputs, {name: torch.zeros_like(leaf) if g is None else g.to_dense() for (name, leaf), g in pairs}


def _numbers_held(recording: Recording, found: SampleGradients) -> int:
    """How many numbers are alive at a time: activations and signals, gradients and their squares, and what a rule writes."""
    held = sum(t.numel() for call in recording.calls for t in call.tensors)
    stored = sum(t.numel() for layer in found.layers.values() for t in layer.tensors().values())
    sequences = [layer for layer in found.layers.values() if isinstance(layer, LinearGradients) and layer.positions > 1]
    dense = TRIAL * sum(layer.size for layer in sequences)
    rules = [(call, call.site.rule) for call in recording.calls if call.site.rule is not None]
    beside = max((rule.workspace(call.site.module, call.zeros[0]) for call, rule in rules), default=0)
    return 2 * held + 3 * stored + 2 * dense + beside


def _cast(tensor: Tensor, dtype: torch.dtype | None) -> Tensor:
    return tensor.to(dtype) if dtype is not None and tensor.is_floating_point() else tensor
