"""The operations in which a parameter's gradient has a closed form: what each is given, and its rule."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from fopng.gradients.rules import ConvRule, LookupRule, ProductRule, Rule, ScaleRule, SpreadRule, TransposedConvRule


@dataclass(frozen=True)
class Operation:
    """One call of such an operation.

    Args:
        rule: its closed form.
        record: gives what to keep of the call.
        weight: what its rule calls so.
        bias: likewise.
    """

    rule: Rule
    record: Callable[[], Tensor]
    weight: Tensor | None
    bias: Tensor | None = None


def describe(func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Operation | None:
    """Read a call of one of these operations; None for one that is used in another way."""
    try:
        return OPERATIONS[func](*args, **kwargs)
    except TypeError:
        # written in a way that torch understands and this does not
        return None


def _linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Operation | None:
    return Operation(ProductRule(), lambda: input, weight, bias) if weight.dim() == 2 else None


def _addmm(input: Tensor, mat1: Tensor, mat2: Tensor, *, beta: float = 1, alpha: float = 1) -> Operation | None:
    if (beta, alpha) != (1, 1) or input.dim() != 1:
        return None
    return Operation(ProductRule(transposed=True), lambda: mat1, mat2, input)


def _matmul(input: Tensor, other: Tensor) -> Operation | None:
    if other.dim() != 2 or input.dim() < 2:
        return None
    return Operation(ProductRule(transposed=True), lambda: input, other)


Sizes = int | Sequence[int]


def _each(sizes: Sizes, dims: int) -> tuple[int, ...]:
    if isinstance(sizes, int):
        return (sizes,) * dims
    return tuple(sizes) if len(sizes) == dims else tuple(sizes) * dims


def _conv(
    dims: int,
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Sizes = 1,
    padding: Sizes | str = 0,
    dilation: Sizes = 1,
    groups: int = 1,
) -> Operation | None:
    if input.dim() != dims + 2:
        return None
    kernel, steps = tuple(weight.shape[2:]), _each(dilation, dims)
    rule = ConvRule(kernel, _each(stride, dims), _sides(padding, kernel, steps), steps, groups)
    return Operation(rule, lambda: input, weight, bias)


def _sides(padding: Sizes | str, kernel: tuple[int, ...], dilation: tuple[int, ...]) -> tuple[tuple[int, int], ...]:
    """What is added before and after each spatial axis."""
    if padding == "valid":
        return tuple((0, 0) for _ in kernel)
    if isinstance(padding, str):
        totals = [d * (k - 1) for d, k in zip(dilation, kernel, strict=True)]
        return tuple((total // 2, total - total // 2) for total in totals)
    return tuple((side, side) for side in _each(padding, len(kernel)))


def _conv_transpose(
    dims: int,
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Sizes = 1,
    padding: Sizes = 0,
    output_padding: Sizes = 0,
    groups: int = 1,
    dilation: Sizes = 1,
) -> Operation | None:
    if input.dim() != dims + 2 or any(_each(output_padding, dims)):
        return None
    kernel, steps = tuple(weight.shape[2:]), _each(dilation, dims)
    conv = ConvRule(kernel, _each(stride, dims), _sides(padding, kernel, steps), steps, groups)
    return Operation(TransposedConvRule(conv), lambda: input, weight, bias)


def _embedding(
    input: Tensor,
    weight: Tensor,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Operation | None:
    words = weight.shape[0]
    padding = None if padding_idx is None else padding_idx % words
    return Operation(LookupRule(words, padding), lambda: input, weight)


def _layer_norm(
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Operation:
    shape = tuple(normalized_shape)
    return Operation(ScaleRule(shape), lambda: F.layer_norm(input, shape, eps=eps), weight, bias)


def _rms_norm(
    input: Tensor, normalized_shape: Sequence[int], weight: Tensor | None = None, eps: float | None = None
) -> Operation:
    shape = list(normalized_shape)
    return Operation(ScaleRule(tuple(shape)), lambda: F.rms_norm(input, shape, eps=eps), weight)


def _group_norm(
    input: Tensor, num_groups: int, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5
) -> Operation:
    return Operation(ScaleRule(None), lambda: F.group_norm(input, num_groups, eps=eps), weight, bias)


def _batch_norm(
    input: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Operation | None:
    if training:
        return None
    return Operation(ScaleRule(None), lambda: F.batch_norm(input, running_mean, running_var, eps=eps), weight, bias)


def _spread(times: bool, input: Tensor, other: Any, *, alpha: float = 1) -> Operation | None:
    """A sum or a product of something large and something smaller: which is the parameter is found out by where they lie."""
    if alpha != 1 or not (isinstance(input, Tensor) and isinstance(other, Tensor)):
        return None
    small, large = sorted((input, other), key=lambda t: (t.dim(), t.numel()))
    if torch.broadcast_shapes(small.shape, large.shape) != large.shape or not large.is_floating_point():
        return None
    shape = (1,) * (large.dim() - small.dim()) + tuple(small.shape)
    return Operation(SpreadRule(shape, small.dim(), times), lambda: large if times else large.new_empty(()), small)


OPERATIONS: dict[Any, Callable[..., Operation | None]] = {
    F.linear: _linear,
    F.embedding: _embedding,
    F.layer_norm: _layer_norm,
    F.rms_norm: _rms_norm,
    F.group_norm: _group_norm,
    F.batch_norm: _batch_norm,
    **dict.fromkeys((torch.addmm, torch.Tensor.addmm), _addmm),
    **dict.fromkeys((torch.matmul, torch.Tensor.matmul, torch.mm, torch.Tensor.mm), _matmul),
    **{own: partial(_conv, dims) for dims, own in ((1, torch.conv1d), (2, torch.conv2d), (3, torch.conv3d))},
    torch.conv_transpose1d: partial(_conv_transpose, 1),
    torch.conv_transpose2d: partial(_conv_transpose, 2),
    torch.conv_transpose3d: partial(_conv_transpose, 3),
    **dict.fromkeys((torch.add, torch.Tensor.add, torch.Tensor.add_), partial(_spread, False)),
    **dict.fromkeys((torch.mul, torch.Tensor.mul), partial(_spread, True)),
}
