"""The layers of many replicas as batched matrix products.

`vmap` makes one grouped convolution of R convolutions with weights of their own, which GPU libraries do slowly in float32, and
copies the weights of a `Linear` layer before it multiplies with them. Here both are batched products; a convolution's patches
are read by a fused kernel where there is one, and written out otherwise.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, final

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

from fopng.core.kernels import kernel, usable

Place = Callable[[Tensor], Tensor | None]
"""Where the gradient of a weight goes."""


@final
class LayersAsProducts(TorchFunctionMode):
    """While this is on, `linear`, and `conv2d` with stride, dilation and groups of one, become products under `vmap`.

    Args:
        places: by the address of a weight, where its gradient is to be written; each is used once, so that the gradients of a
            weight that is used twice are still added up.
    """

    def __init__(self, places: dict[int, Tensor] | None = None) -> None:
        super().__init__()
        self._places = {} if places is None else places

    def place(self, weight: Tensor) -> Tensor | None:
        """Where the gradient of a weight goes; None for a tensor of its own, which a part or a transposed view of a weight gets."""
        place = self._places.get(weight.data_ptr())
        if place is None or (place.shape, place.stride()) != (weight.shape, weight.stride()):
            return None
        return self._places.pop(weight.data_ptr())

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        given = dict(kwargs or {})
        if func is torch.conv2d and not given and len(args) == 7 and _plain(*args[1:]):
            return _Convolution.apply(*args[:3], _pair(args[4]))  # type: ignore[no-untyped-call]
        if func is F.linear and not given and len(args) == 3 and args[0].dim() == 2 and args[2] is not None:
            return _Linear.apply(*args, self.place)  # type: ignore[no-untyped-call]
        return func(*args, **given)


def _plain(weight: Tensor, bias: Tensor | None, stride: Any, padding: Any, dilation: Any, groups: int) -> bool:
    """Whether a convolution can be written as a product."""
    ones = _pair(stride) == _pair(dilation) == (1, 1) and groups == 1 and bias is not None
    kernel = weight.shape[-2:]
    return (
        ones
        and not isinstance(padding, str)
        and all(2 * p == k - 1 for p, k in zip(_pair(padding), kernel, strict=True))
    )


def _pair(value: Any) -> tuple[int, int]:
    return (value, value) if isinstance(value, int) else tuple(value)


def _stacked(info: Any, in_dims: tuple[int | None, ...], *tensors: Tensor) -> list[Tensor]:
    """The operands with the replicas in front."""
    return [
        t.movedim(axis, 0) if axis is not None else t.expand(info.batch_size, *t.shape)
        for t, axis in zip(tensors, in_dims, strict=False)
    ]


def _as_computed(*tensors: Tensor) -> list[Tensor]:
    """The operands as products take them under autocast, which is off when signals go back through a function of one's own."""
    kind = tensors[0].device.type
    if not torch.is_autocast_enabled(kind):
        return list(tensors)
    return [tensor.to(torch.get_autocast_dtype(kind)) for tensor in tensors]


@final
class _Linear(torch.autograd.Function):
    """A `Linear` layer that has a rule for `vmap`; it is differentiated only there."""

    @staticmethod
    def forward(x: Tensor, weight: Tensor, bias: Tensor, place: Place) -> Tensor:
        return F.linear(x, weight, bias)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        return

    @staticmethod
    def vmap(
        info: Any, in_dims: tuple[int | None, ...], x: Tensor, weight: Tensor, bias: Tensor, place: Place
    ) -> tuple[Tensor, int]:
        """All replicas at once."""
        x, weight, bias = _stacked(info, in_dims, x, weight, bias)
        places = (place(weight), place(bias))
        return _LinearProducts.apply(x, weight, bias, places), 0  # type: ignore[no-untyped-call]


@final
class _LinearProducts(torch.autograd.Function):
    """`x [R, n, i]`, `weight [R, o, i]`, `bias [R, o]` to `[R, n, o]`; gradients are written where they belong."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, places: tuple[Tensor | None, Tensor | None]
    ) -> Tensor:
        x, weight, bias = _as_computed(x, weight, bias)
        ctx.save_for_backward(x, weight)
        ctx.places = places
        return torch.baddbmm(bias.unsqueeze(1), x, weight.mT)

    @staticmethod
    def backward(ctx: Any, back: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None, None]:
        x, weight = ctx.saved_tensors
        wanted_x, wanted_weight, wanted_bias, _ = ctx.needs_input_grad
        # a weight that was detached has its place still, and must leave it alone
        place, bias_place = (_fitting(place, back, x) for place in ctx.places)
        return (
            back @ weight if wanted_x else None,
            torch.bmm(back.mT, x, out=place) if wanted_weight else None,
            torch.sum(back, 1, out=bias_place) if wanted_bias else None,
            None,
        )


def _fitting(place: Tensor | None, *operands: Tensor) -> Tensor | None:
    """The place, if it has the precision of the operands."""
    return place if place is not None and all(place.dtype == operand.dtype for operand in operands) else None


@final
class _Convolution(torch.autograd.Function):
    """A convolution that has a rule for `vmap`; it is differentiated only there."""

    @staticmethod
    def forward(x: Tensor, weight: Tensor, bias: Tensor, padding: tuple[int, int]) -> Tensor:
        return F.conv2d(x, weight, bias, padding=padding)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        return

    @staticmethod
    def vmap(
        info: Any, in_dims: tuple[int | None, ...], x: Tensor, weight: Tensor, bias: Tensor, padding: tuple[int, int]
    ) -> tuple[Tensor, int]:
        """All replicas at once."""
        stacked = _stacked(info, in_dims, x, weight, bias)
        fused = usable(*stacked)
        return (_FusedConvolution if fused else _PatchProducts).apply(*stacked), 0  # type: ignore[no-untyped-call]


@final
class _FusedConvolution(torch.autograd.Function):
    """`x [R, n, c, h, w]`, `weight [R, o, c, k, k]`, `bias [R, o]` to `[R, n, o, h, w]`, nothing written out."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        convolved: Callable[..., Tensor] = kernel("convolution.convolved")
        x, weight = x.contiguous(), weight.contiguous()
        ctx.save_for_backward(x, weight)
        return convolved(x, weight, bias.contiguous())

    @staticmethod
    def backward(ctx: Any, back: Tensor) -> tuple[Tensor | None, Tensor, Tensor]:
        convolved: Callable[..., Tensor] = kernel("convolution.convolved")
        weight_gradient: Callable[..., Tensor] = kernel("convolution.weight_gradient")
        x, weight = ctx.saved_tensors
        back = back.contiguous()
        for_x = convolved(back, _turned(weight).contiguous(), None) if ctx.needs_input_grad[0] else None
        return for_x, weight_gradient(x, back, weight.shape[-2:]), back.sum((1, 3, 4))


@final
class _PatchProducts(torch.autograd.Function):
    """The same with the patches written out, for every device and precision."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        x, weight, bias = _as_computed(x, weight, bias)
        patches = _patches(x, weight.shape[-2:])
        ctx.save_for_backward(patches, weight)
        out = _apply(weight.flatten(2), patches) + bias[:, None, :, None]
        return out.view(*out.shape[:3], *x.shape[3:])

    @staticmethod
    def backward(ctx: Any, back: Tensor) -> tuple[Tensor | None, Tensor, Tensor]:
        patches, weight = ctx.saved_tensors
        flat = back.flatten(3)
        # a product a sample, then added up: a product over all samples at once would be too long and too narrow
        for_weight = (flat @ patches.mT).sum(1).view(weight.shape)
        for_x = None
        if ctx.needs_input_grad[0]:
            for_x = _apply(_turned(weight).flatten(2), _patches(back, weight.shape[-2:]))
            for_x = for_x.view(*for_x.shape[:3], *back.shape[3:])
        return for_x, for_weight, flat.sum((1, 3))


def _turned(weight: Tensor) -> Tensor:
    """The weight with which signals go back: turned by half a circle, inputs and outputs exchanged."""
    return weight.flip(-1, -2).transpose(1, 2)


def _apply(weight: Tensor, patches: Tensor) -> Tensor:
    """`[R, o, q]` times `[R, n, q, places]`."""
    return weight.unsqueeze(1).expand(-1, patches.shape[1], -1, -1) @ patches


def _patches(x: Tensor, kernel: Sequence[int]) -> Tensor:
    """The patch under the kernel at every place: `[R, n, c, h, w] -> [R, n, c * k * k, h * w]`."""
    high, wide = (size // 2 for size in kernel)
    windows = F.pad(x, (wide, wide, high, high)).unfold(3, kernel[0], 1).unfold(4, kernel[1], 1)
    return windows.permute(0, 1, 2, 5, 6, 3, 4).flatten(5).flatten(2, 4)
