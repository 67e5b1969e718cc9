"""What stands for a task's inputs when its data are gone: inputs, and what the model answered to them when the task ended.

Some of a probe's inputs are measured (how far are today's answers from those?), the others may be rehearsed; never the same ones.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, final, get_args

import torch
from torch import Tensor

from fopng.core.batch import Batch, sample_count, take, tensors_of
from fopng.core.layout import wide_dtype
from fopng.core.likelihood import Categorical
from fopng.core.tree import node, tensors_in
from fopng.curvature.sampling import SampleStream, parameter_like
from fopng.gradients.per_sample import PerSampleGradients
from fopng.memory.gaussians import DRAWS, FIRST, GaussianInputs, fit_gaussians, is_targets, numbers_in, per_sample
from fopng.memory.generated_texts import write_texts
from fopng.memory.old_answers import OldAnswers, keep_answers
from fopng.memory.replay_draws import TaskSamples, join_alike
from fopng.memory.replay_samples import Drawn

Drawable: TypeAlias = Literal["moments", "generated"]
"""What can be drawn again without any data: numbers from kept moments, texts that the model writes."""

ProbeKind: TypeAlias = Drawable | int | Iterable[Batch] | Callable[[int], Batch] | None
"""What stands for old inputs. None for what fits the inputs, "moments" or "generated"; a number of samples of each task that may be
kept; a loader of samples that stand for old ones; a function `draw(n) -> batch`."""

TEXTS = 256
"""Texts that a language model writes for each task."""

ONE_IN = 4
"""One input in so many is measured, and never rehearsed, where inputs are kept."""

ASKED = 64
"""Inputs that are asked about at a time."""


@node
@final
@dataclass(frozen=True, eq=False)
class KeptInputs:
    """Inputs that are kept as they are.

    Args:
        samples: the inputs, `[..., n, *shape]`.
        lead: the number of replica axes.
    """

    samples: Batch
    lead: int = 0

    @property
    def count(self) -> int:
        """How many inputs there are."""
        return sample_count(self.samples, self.lead)

    def batch(self, rows: Tensor) -> Batch:
        """The inputs of these numbers, int64 `[n]`, in the form of the task's batches."""
        return take(self.samples, rows, self.lead)


@node
@final
@dataclass(frozen=True, eq=False)
class TaskProbe:
    """What stands for a task.

    Args:
        inputs: what stands for its inputs.
        answers: what the model answered to them when the task ended.
        path: the parameters that it was answered through.
    """

    inputs: GaussianInputs | KeptInputs
    answers: OldAnswers
    path: tuple[str, ...] = ()

    def to_measure(self, turn: int, count: int) -> Drawn:
        """Some of the inputs that are measured, others at the next turn."""
        return self._window(0, self._measured, turn, count)

    def to_rehearse(self, turn: int, count: int) -> Drawn:
        """Some of the inputs that are rehearsed, others at the next turn."""
        return self._window(self._measured, self.inputs.count, turn, count)

    @property
    def _measured(self) -> int:
        return FIRST if isinstance(self.inputs, GaussianInputs) else max(1, self.inputs.count // ONE_IN)

    def _window(self, start: int, end: int, turn: int, count: int) -> Drawn:
        lead, size = self.inputs.lead, end - start
        count = min(count, size)
        like = next(tensors_in(self.answers))
        rows = start + (turn * count + torch.arange(count, device=like.device)) % size
        shares = torch.full((*like.shape[:lead], count), 1 / count, device=like.device)
        return Drawn(self.inputs.batch(rows), shares, self.answers.rows(lead, rows), self.path, still=True)


@final
@dataclass(frozen=True)
class Prober:
    """Makes the probe of a task that ends.

    Args:
        source: the model.
        stream: the task's data.
        sampling: its samples.
        kind: what stands for old inputs.
    """

    source: PerSampleGradients
    stream: SampleStream
    sampling: TaskSamples
    kind: ProbeKind = None

    def check(self) -> None:
        """Raise where nothing could stand for inputs of this kind."""
        self._drawable() if self.kind is None or isinstance(self.kind, str) else None

    def probe(self) -> TaskProbe:
        """The inputs, and what the model answers to them now."""
        inputs = self._inputs()
        if inputs.count < 2:
            raise ValueError(
                f"Expected at least 2 samples for a probe, one to measure and one to rehearse, got {inputs.count}. Give more."
            )
        parts = torch.arange(inputs.count, device=self._place).split(ASKED)
        answers = (self.sampling.answers(inputs.batch(rows)) for rows in parts)
        wide = (part.to(wide_dtype([part])) for part in answers)
        kept = keep_answers(self.source.likelihood, wide, self.stream.axis)
        return TaskProbe(inputs, kept, self.sampling.learnt().path)

    def _inputs(self) -> GaussianInputs | KeptInputs:
        kind, lead = self.kind, self.stream.axis
        if isinstance(kind, int):
            return KeptInputs(_joined((drawn.batch for drawn in self.sampling.draw(kind)), lead), lead)
        if callable(kind):
            return KeptInputs(kind(DRAWS), lead)
        if kind is not None and not isinstance(kind, str):
            return KeptInputs(_joined(kind, lead), lead)
        if self._drawable() == "generated":
            return KeptInputs(write_texts(self.source, self._few(), TEXTS, int(self.sampling.key())))
        return fit_gaussians(self.source, self.stream, self.sampling.key().to(self._place))

    @property
    def _place(self) -> torch.device:
        return parameter_like(self.source, self.stream.parameters).device

    def _few(self) -> Batch:
        found = next(iter(self.stream.chunks(self.source, TEXTS, labels=False)), None)
        if found is None:
            raise ValueError("Expected samples of the task, got none. Pass its training data.")
        return found

    def _drawable(self) -> Drawable:
        """What fits the task's inputs."""
        batch, axis = self._few(), self.stream.axis
        outputs, targets = self.source.answers(batch, parameters=self.stream.parameters)
        numbers = numbers_in(batch, axis)
        words = isinstance(self.source.likelihood, Categorical) and outputs.dim() > axis + 2
        if words and not numbers and self.kind != "moments":
            return "generated"
        if numbers and self.kind != "generated" and not _differ(batch, targets, axis):
            return "moments"
        found = ", ".join(f"{str(t.dtype).removeprefix('torch.')} {list(t.shape)}" for t in tensors_of(batch))
        raise ValueError(
            f"Expected inputs that can be drawn again (numbers, or the texts of a causal language model), got a "
            f"{type(batch).__name__} of {found}. Pass probe=: how many samples of each task may be kept, a loader of samples that "
            "stand for old ones, or a function draw(n) -> batch; or pass tolerance=None and rehearse=0. Of an optimizer that is at "
            "work set its `probe`, and call this again."
        )


def check_kind(kind: object) -> None:
    """Raise for what cannot be a probe."""
    if isinstance(kind, Iterator):
        raise TypeError(
            f"Expected a probe that can be walked more than once (a loader, a list of batches), got a {type(kind).__name__}."
        )
    words = get_args(Drawable)
    known = kind in words if isinstance(kind, str) else kind is None or callable(kind) or isinstance(kind, Iterable)
    if isinstance(kind, bool) or not (known or (isinstance(kind, int) and kind > 1)):
        raise ValueError(
            f"Expected probe to be one of {', '.join(map(repr, words))}, a number of samples of at least 2, a loader, a function "
            f"of a number, or None, got {kind!r}."
        )


def _differ(batch: Batch, targets: Tensor | None, axis: int) -> bool:
    """Whether whole numbers beside the targets differ from sample to sample: tokens, masks."""
    n = sample_count(batch, axis)
    whole = [t for t in tensors_of(batch) if per_sample(t, axis, n) and not t.is_floating_point()]
    return any(not is_targets(t, targets) and bool((t != t.narrow(axis, 0, 1)).any()) for t in whole)


def _joined(batches: Iterable[Batch], axis: int) -> Batch:
    found: list[Any] = join_alike(batches, axis)
    if len(found) != 1:
        raise ValueError(
            f"Expected samples for a probe that can be joined in one batch, got {len(found)} kinds. Pad them, or pass probe=, a "
            "function draw(n) -> batch."
        )
    return found[0]
