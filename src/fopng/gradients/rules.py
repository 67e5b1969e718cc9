"""One rule a kind of layer: per-sample gradients from what the layer was given and the derivative at its output.

A rule is given one call of a module as `records [n, ...]` (kept in the forward pass) and `signals [n, ...]` (the score's
derivative at the module's output), sample by sample, and returns `{parameter: [n, *shape]}`.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, final

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Unsupported(Exception):
    """A rule does not hold for this module; the module around it is tried instead."""


class Rule(ABC):
    """Closed-form per-sample gradients of one kind of layer with a single output tensor."""

    @abstractmethod
    def record(self, module: nn.Module, inputs: Tensor) -> Tensor:
        """Return what to keep of a call: computed in the forward pass, while buffers are those of the run."""

    @abstractmethod
    def gradients(self, module: nn.Module, record: Tensor, signal: Tensor) -> dict[str, Tensor]:
        """Per-sample gradients of the module's own parameters."""

    def workspace(self, module: nn.Module, signal: Tensor) -> int:
        """How many numbers the rule writes beside its result."""
        return 0


class FactoredRule(Rule):
    """Layers that are a product at every position: the gradient of the weight is `sum_t d_t a_t^T`, of the bias `sum_t d_t`."""

    def record(self, module: nn.Module, inputs: Tensor) -> Tensor:
        return inputs

    def splits(self, module: nn.Module) -> bool:
        """Whether one pair of factors makes up the whole weight."""
        return True

    @abstractmethod
    def inputs(self, module: nn.Module, record: Tensor) -> Tensor:
        """What the weight was multiplied with at each position, `a [n, t, i]`."""

    @abstractmethod
    def signals(self, module: nn.Module, signal: Tensor) -> Tensor:
        """The derivative at each position, `d [n, t, o]`."""


@final
class LinearRule(FactoredRule):
    """`W x + b`: the positions are those of a sequence."""

    def inputs(self, module: nn.Module, record: Tensor) -> Tensor:
        return positions(record)

    def signals(self, module: nn.Module, signal: Tensor) -> Tensor:
        return positions(signal)

    def gradients(self, module: nn.Module, record: Tensor, signal: Tensor) -> dict[str, Tensor]:
        a, d = positions(record), positions(signal)
        return {"weight": d.mT @ a, "bias": d.sum(1)}


def positions(tensor: Tensor) -> Tensor:
    """View `[n, ..., i]` as `[n, t, i]`: every axis between sample and feature is a position."""
    return tensor.reshape(tensor.shape[0], -1, tensor.shape[-1])


@final
class ConvRule(FactoredRule):
    """Convolutions in one to three dimensions: the sum over places of signal times patch."""

    def splits(self, module: nn.Module) -> bool:
        assert isinstance(module, (nn.Conv1d, nn.Conv2d, nn.Conv3d))
        return module.groups == 1

    def inputs(self, module: nn.Module, record: Tensor) -> Tensor:
        assert isinstance(module, (nn.Conv1d, nn.Conv2d, nn.Conv3d))
        patches = _patches(module, record)
        return patches.reshape(patches.shape[0], -1, patches.shape[-1]).mT

    def signals(self, module: nn.Module, signal: Tensor) -> Tensor:
        return signal.flatten(2).mT

    def gradients(self, module: nn.Module, record: Tensor, signal: Tensor) -> dict[str, Tensor]:
        assert isinstance(module, (nn.Conv1d, nn.Conv2d, nn.Conv3d))
        n, groups = signal.shape[0], module.groups
        patches = _patches(module, record).reshape(n, groups, -1, signal.shape[2:].numel())
        d = signal.reshape(n, groups, -1, signal.shape[2:].numel())
        weight = (d @ patches.mT).reshape(n, *module.weight.shape)
        return {"weight": weight, "bias": signal.flatten(2).sum(-1)}

    def workspace(self, module: nn.Module, signal: Tensor) -> int:
        assert isinstance(module, (nn.Conv1d, nn.Conv2d, nn.Conv3d))
        places = signal.numel() // module.out_channels
        return places * module.in_channels * torch.Size(module.kernel_size).numel()


def _patches(module: nn.Conv1d | nn.Conv2d | nn.Conv3d, inputs: Tensor) -> Tensor:
    """Write out the patch under the kernel at every place: `[n, channels, *kernel, places]`."""
    sizes = zip(inputs.shape[2:], module.kernel_size, module.stride, module.dilation, strict=True)
    dims = len(module.kernel_size)
    mode = "constant" if module.padding_mode == "zeros" else module.padding_mode
    pads = [side for pair in reversed(_padding(module)) for side in pair]
    if dims == 2 and mode == "constant" and all(left == right for left, right in _padding(module)):
        sides = tuple(left for left, _ in _padding(module))
        return F.unfold(inputs, module.kernel_size, module.dilation, sides, module.stride)
    padded = F.pad(inputs, pads, mode=mode) if any(pads) else inputs
    for axis, (_, kernel, stride, dilation) in enumerate(sizes, start=2):
        padded = padded.unfold(axis, dilation * (kernel - 1) + 1, stride)[..., ::dilation]
    return padded.permute(0, 1, *range(2 + dims, 2 + 2 * dims), *range(2, 2 + dims)).flatten(2 + dims)


def _padding(module: nn.Conv1d | nn.Conv2d | nn.Conv3d) -> list[tuple[int, int]]:
    """What is added before and after each spatial axis."""
    if isinstance(module.padding, str):
        if module.padding == "valid":
            return [(0, 0)] * len(module.kernel_size)
        totals = [d * (k - 1) for d, k in zip(module.dilation, module.kernel_size, strict=True)]
        return [(total // 2, total - total // 2) for total in totals]
    return [(side, side) for side in module.padding]


@final
class ScaleRule(Rule):
    """Normalisation with a scale and a shift: the gradient of the scale is the normalised input times the signal.

    Args:
        normalise: gives the layer's output before scale and shift.
        last: whether scale and shift have the shape of the last axes, or belong to the channels, axis 1.
    """

    def __init__(self, normalise: Callable[[Any, Tensor], Tensor], *, last: bool) -> None:
        self._normalise, self._last = normalise, last

    def record(self, module: nn.Module, inputs: Tensor) -> Tensor:
        return self._normalise(module, inputs)

    def gradients(self, module: nn.Module, record: Tensor, signal: Tensor) -> dict[str, Tensor]:
        own = next(iter(module.parameters(recurse=False)))
        n, size = signal.shape[0], own.numel()
        if self._last:
            return {
                name: value.reshape(n, -1, size).sum(1).reshape(n, *own.shape)
                for name, value in (("weight", record * signal), ("bias", signal))
            }
        return {
            name: value.flatten(2).sum(-1) if value.dim() > 2 else value
            for name, value in (("weight", record * signal), ("bias", signal))
        }


@final
class EmbeddingRule(Rule):
    """A table of vectors: the signals, added up at the rows that were looked up."""

    def record(self, module: nn.Module, inputs: Tensor) -> Tensor:
        return inputs

    def gradients(self, module: nn.Module, record: Tensor, signal: Tensor) -> dict[str, Tensor]:
        assert isinstance(module, nn.Embedding)
        n = record.shape[0]
        d = signal.reshape(n, -1, module.embedding_dim)
        rows = record.reshape(n, -1, 1).expand_as(d)
        if module.padding_idx is not None:
            d = d * (rows != module.padding_idx)
        table = d.new_zeros(n, module.num_embeddings, module.embedding_dim)
        return {"weight": table.scatter_add(1, rows, d)}


def _batch_norm(module: nn.BatchNorm2d, x: Tensor) -> Tensor:
    return F.batch_norm(x, module.running_mean, module.running_var, eps=module.eps)


_RULES: dict[type[nn.Module], Rule] = {
    nn.Linear: LinearRule(),
    nn.Embedding: EmbeddingRule(),
    nn.LayerNorm: ScaleRule(lambda m, x: F.layer_norm(x, m.normalized_shape, eps=m.eps), last=True),
    nn.RMSNorm: ScaleRule(lambda m, x: F.rms_norm(x, m.normalized_shape, eps=m.eps), last=True),
    nn.GroupNorm: ScaleRule(lambda m, x: F.group_norm(x, m.num_groups, eps=m.eps), last=False),
    **dict.fromkeys((nn.Conv1d, nn.Conv2d, nn.Conv3d), ConvRule()),
    **dict.fromkeys((nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d), ScaleRule(_batch_norm, last=False)),
}


def rule_for(module: nn.Module) -> Rule | None:
    """Find the rule of a module, if it has one: its kind's `forward`, untouched, and only plain parameters."""
    for kind, rule in _RULES.items():
        plain = (
            isinstance(module, kind)
            and type(module).forward is kind.forward
            and not hasattr(module, "parametrizations")
        )
        if plain:
            return rule
    return None


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
