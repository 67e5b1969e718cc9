"""One rule a kind of operation: per-sample gradients from what it was given and the derivative at its output.

A rule is given one use of a weight as `record [n, ...]` (kept in the forward pass) and `signal [n, ...]` (the score's derivative at
the operation's output), sample by sample, and returns the gradients of weight and bias, `[n, *shape]` each.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fopng.gradients.forms import PLAIN, Form
from fopng.gradients.places import Place

Pair = tuple[Tensor, Tensor]
"""Of a weight and of a bias."""


class Unsupported(Exception):
    """A rule does not hold for this use; the gradients of its parameters are taken through the whole model instead."""


class Rule(ABC):
    """Closed-form per-sample gradients through one kind of operation with a single output."""

    @property
    def sampled(self) -> bool:
        """Whether what is recorded has a part for each sample."""
        return True

    @abstractmethod
    def gradients(self, record: Tensor, signal: Tensor) -> Pair:
        """Per-sample gradients of weight and bias."""

    def workspace(self, record: Tensor, signal: Tensor) -> int:
        """How many numbers the rule writes beside its result."""
        return 0


class FactoredRule(Rule):
    """Operations that are a product at every position: the gradient of the weight is `sum_t d_t a_t^T`, of the bias `sum_t d_t`."""

    biased = True
    """Whether the bias is what an input of 1 at each position would be multiplied with."""

    @abstractmethod
    def form(self, place: Place) -> Form | None:
        """How the weight is read as such a matrix; None where it is not the whole of a matrix or a block of one."""

    @abstractmethod
    def inputs(self, record: Tensor) -> Tensor:
        """What the weight was multiplied with at each position, `a [n, (groups,) t, i]`."""

    @abstractmethod
    def signals(self, signal: Tensor) -> Tensor:
        """The derivative at each position, `d [n, (groups,) t, o]`."""


def positions(tensor: Tensor) -> Tensor:
    """View `[n, ..., i]` as `[n, t, i]`: every axis between sample and feature is a position."""
    return tensor.reshape(tensor.shape[0], -1, tensor.shape[-1])


@final
@dataclass(frozen=True)
class ProductRule(FactoredRule):
    """`W x + b`: the positions are those of a sequence.

    Args:
        transposed: whether the weight is given as `[i, o]`.
    """

    transposed: bool = False

    def form(self, place: Place) -> Form | None:
        corner = place.corner()
        if corner is None:
            return None
        turned = self.transposed != corner[2]
        split = len(place.shape) - 1
        return PLAIN if not turned and split == 1 else Form(transposed=turned, split=split)

    def inputs(self, record: Tensor) -> Tensor:
        return positions(record)

    def signals(self, signal: Tensor) -> Tensor:
        return positions(signal)

    def gradients(self, record: Tensor, signal: Tensor) -> Pair:
        a, d = positions(record), positions(signal)
        return (a.mT @ d if self.transposed else d.mT @ a), d.sum(1)


@final
@dataclass(frozen=True)
class ConvRule(FactoredRule):
    """Convolutions in one to three dimensions: the sum over places of signal times patch.

    Args:
        kernel: its size along each spatial axis.
        stride: its step.
        padding: zeros added before and after each spatial axis.
        dilation: the step within the kernel.
        groups: of channels, each with a kernel of its own.
    """

    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[tuple[int, int], ...]
    dilation: tuple[int, ...]
    groups: int

    def form(self, place: Place) -> Form | None:
        if place.strides is not None:
            return None
        return PLAIN if self.groups == 1 else Form(groups=self.groups)

    def inputs(self, record: Tensor) -> Tensor:
        patches = self.patches(record)
        if self.groups == 1:
            return patches.reshape(patches.shape[0], -1, patches.shape[-1]).mT
        return patches.reshape(patches.shape[0], self.groups, -1, patches.shape[-1]).mT

    def signals(self, signal: Tensor) -> Tensor:
        flat = signal.flatten(2)
        return flat.mT if self.groups == 1 else flat.unflatten(1, (self.groups, -1)).mT

    def gradients(self, record: Tensor, signal: Tensor) -> Pair:
        n, groups = signal.shape[0], self.groups
        patches = self.patches(record).reshape(n, groups, -1, signal.shape[2:].numel())
        d = signal.reshape(n, groups, -1, signal.shape[2:].numel())
        weight = (d @ patches.mT).reshape(n, signal.shape[1], record.shape[1] // groups, *self.kernel)
        return weight, signal.flatten(2).sum(-1)

    def workspace(self, record: Tensor, signal: Tensor) -> int:
        places = signal.numel() // signal.shape[1]
        return places * record.shape[1] * torch.Size(self.kernel).numel()

    def patches(self, inputs: Tensor) -> Tensor:
        """Write out the patch under the kernel at every place: `[n, channels, *kernel, places]`."""
        dims = len(self.kernel)
        if dims == 2 and all(left == right for left, right in self.padding):
            sides = tuple(left for left, _ in self.padding)
            return F.unfold(inputs, self.kernel, self.dilation, sides, self.stride)
        pads = [side for pair in reversed(self.padding) for side in pair]
        padded = F.pad(inputs, pads) if any(pads) else inputs
        for axis, (kernel, stride, dilation) in enumerate(
            zip(self.kernel, self.stride, self.dilation, strict=True), start=2
        ):
            padded = padded.unfold(axis, dilation * (kernel - 1) + 1, stride)[..., ::dilation]
        return padded.permute(0, 1, *range(2 + dims, 2 + 2 * dims), *range(2, 2 + dims)).flatten(2 + dims)


@final
@dataclass(frozen=True)
class TransposedConvRule(FactoredRule):
    """Transposed convolutions: what is multiplied at each place of the input goes to the patch under the kernel in the output.

    Args:
        conv: the convolution that goes the other way.
    """

    conv: ConvRule
    biased = False

    def form(self, place: Place) -> Form | None:
        return None if place.strides is not None else Form(groups=self.conv.groups, transposed=True)

    def inputs(self, record: Tensor) -> Tensor:
        return self.conv.signals(record)

    def signals(self, signal: Tensor) -> Tensor:
        return self.conv.inputs(signal)

    def gradients(self, record: Tensor, signal: Tensor) -> Pair:
        # what the kernel reaches beyond the last place is where output_padding is
        return self.conv.gradients(signal, record)[0], signal.flatten(2).sum(-1)

    def workspace(self, record: Tensor, signal: Tensor) -> int:
        return self.conv.workspace(signal, record)


@final
@dataclass(frozen=True)
class ScaleRule(Rule):
    """Normalisation with a scale and a shift: the gradient of the scale is the normalised input times the signal.

    Args:
        last: the shape of scale and shift where they have that of the last axes; None where they belong to the channels, axis 1.
    """

    last: tuple[int, ...] | None

    def gradients(self, record: Tensor, signal: Tensor) -> Pair:
        if self.last is None:
            scaled = record * signal
            return tuple(value.flatten(2).sum(-1) if value.dim() > 2 else value for value in (scaled, signal))  # type: ignore[return-value]
        n, size = signal.shape[0], torch.Size(self.last).numel()
        return tuple(  # type: ignore[return-value]
            value.reshape(n, -1, size).sum(1).reshape(n, *self.last) for value in (record * signal, signal)
        )


@final
@dataclass(frozen=True)
class LookupRule(Rule):
    """A table of vectors: the signals, added up at the rows that were looked up.

    Args:
        words: the rows of the table.
        padding: the row that does not learn.
    """

    words: int
    padding: int | None

    def gradients(self, record: Tensor, signal: Tensor) -> Pair:
        n = record.shape[0]
        d = self.signals(record, signal)
        rows = record.reshape(n, -1, 1).expand_as(d)
        table = d.new_zeros(n, self.words, d.shape[-1])
        return table.scatter_add(1, rows, d), d

    def signals(self, record: Tensor, signal: Tensor) -> Tensor:
        """The derivative at each word, `[n, t, o]`; zero where it is padding."""
        d = signal.reshape(record.shape[0], -1, signal.shape[-1])
        if self.padding is None:
            return d
        return d * (record.reshape(len(record), -1, 1) != self.padding)


@final
@dataclass(frozen=True)
class SpreadRule(Rule):
    """A parameter that is added to, or multiplied with, something larger: the sum over all that it was spread over.

    Args:
        shape: of the parameter, with a 1 in front for each axis that it lacks; along the samples it must be 1, too.
        own: how many axes it has itself.
        times: whether it is a factor, not a summand.
    """

    shape: tuple[int, ...]
    own: int
    times: bool

    @property
    def sampled(self) -> bool:
        return self.times

    def gradients(self, record: Tensor, signal: Tensor) -> Pair:
        if signal.dim() != len(self.shape) or self.shape[0] != 1:
            raise Unsupported
        product = record * signal if self.times else signal
        over = [axis for axis in range(1, signal.dim()) if self.shape[axis] == 1]
        summed = product.sum(over, keepdim=True) if over else product
        kept = self.shape[len(self.shape) - self.own :]
        found = summed.reshape(len(signal), *kept)
        return found, found


@final
@dataclass(frozen=True)
class SharedLookupRule(Rule):
    """Rows of a table that are the same for all samples, added to something: positions.

    Args:
        spread: how what was looked up was added.
        words: the rows of the table.
        size: of what was looked up.
    """

    spread: SpreadRule
    words: int
    size: tuple[int, ...]

    @property
    def sampled(self) -> bool:
        return False

    def gradients(self, record: Tensor, signal: Tensor) -> Pair:
        added, _ = self.spread.gradients(signal, signal)
        d = added.reshape(len(signal), -1, self.size[-1])
        table = d.new_zeros(len(signal), self.words, self.size[-1])
        return table.index_add(1, record.flatten(), d), d


def check_module(name: str, module: nn.Module) -> None:
    """Raise for a module whose output for one sample depends on the others, or that cannot be recorded."""
    if isinstance(module, torch.jit.ScriptModule):
        raise TypeError(
            f"Module {name!r} is a ScriptModule, whose calls cannot be recorded. Pass the module it was made from."
        )
    if isinstance(module, nn.modules.batchnorm._BatchNorm) and not module.track_running_stats:
        raise ValueError(
            f"Module {name!r} ({type(module).__name__}) normalises by the batch at hand (track_running_stats=False), so a sample "
            "has no gradient of its own. Use running statistics, GroupNorm or LayerNorm."
        )
    if isinstance(module, (nn.Embedding, nn.EmbeddingBag)) and (
        module.max_norm is not None or module.scale_grad_by_freq
    ):
        raise ValueError(
            f"Module {name!r} (Embedding) uses max_norm or scale_grad_by_freq, under which a sample has no gradient of its own. "
            "Turn both off."
        )
