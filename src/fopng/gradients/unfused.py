"""Recurrent layers as the products they are made of, to the same outputs: their fused functions hide where weights are used."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

States = tuple[Tensor, ...]
"""What is carried from one step to the next, `[n, h]` each: h, and c where there is one."""

Cell = Callable[[Tensor, Tensor, States], States]
"""The next states, from the input's part of the gates, the state's part and the states."""


def _lstm(x: Tensor, h: Tensor, states: States) -> States:
    i, f, g, o = (x + h).chunk(4, -1)
    c = f.sigmoid() * states[1] + i.sigmoid() * g.tanh()
    return o.sigmoid() * c.tanh(), c


def _gru(x: Tensor, h: Tensor, states: States) -> States:
    (x_r, x_z, x_n), (h_r, h_z, h_n) = x.chunk(3, -1), h.chunk(3, -1)
    r, z = (x_r + h_r).sigmoid(), (x_z + h_z).sigmoid()
    n = (x_n + r * h_n).tanh()
    return ((1 - z) * n + z * states[0],)


def _tanh(x: Tensor, h: Tensor, states: States) -> States:
    return ((x + h).tanh(),)


def _relu(x: Tensor, h: Tensor, states: States) -> States:
    return ((x + h).relu(),)


def _layer(cell: Cell) -> Callable[..., Any]:
    """A whole recurrent layer, or a stack of them, of one kind of cell."""

    def padded(
        x: Tensor,
        hx: Any,
        weights: Any,
        biased: bool,
        layers: int,
        dropout: float,
        train: bool,
        both: bool,
        first: bool,
    ) -> Any:
        steps = x.transpose(0, 1) if first else x
        lengths = [steps.shape[1]] * steps.shape[0]
        outputs, last = _stack(cell, list(steps.unbind(0)), lengths, hx, weights, biased, layers, both)
        found = torch.stack(outputs, 1 if first else 0)
        return found, *last

    def packed(
        x: Tensor,
        sizes: Tensor,
        hx: Any,
        weights: Any,
        biased: bool,
        layers: int,
        dropout: float,
        train: bool,
        both: bool,
    ) -> Any:
        lengths = sizes.tolist()
        outputs, last = _stack(cell, list(x.split(lengths)), lengths, hx, weights, biased, layers, both)
        return torch.cat(outputs), *last

    def run(*args: Any) -> Any:
        return (padded if isinstance(args[3], bool) else packed)(*args)

    return run


def _stack(
    cell: Cell,
    steps: list[Tensor],
    sizes: list[int],
    hx: Any,
    weights: Sequence[Tensor],
    biased: bool,
    layers: int,
    both: bool,
) -> tuple[list[Tensor], list[Tensor]]:
    """Layer after layer: the outputs of the last at every step, and the last states of all."""
    states = hx if isinstance(hx, (tuple, list)) else (hx,)
    ends = 1 + both
    each = len(weights) // (layers * ends)
    last: list[States] = []
    for layer in range(layers):
        found = []
        for end in range(ends):
            k = layer * ends + end
            first = tuple(own[k] for own in states)
            projected = len(states) == 2 and each == 2 * (1 + biased) + 1
            one = _direction(
                cell, steps, sizes, first, weights[k * each : (k + 1) * each], biased, bool(end), projected
            )
            found.append(one[0])
            last.append(one[1])
        steps = [torch.cat(pair, -1) for pair in zip(*found, strict=True)] if both else found[0]
    return steps, [torch.stack(column) for column in zip(*last, strict=True)]


def _direction(
    cell: Cell,
    steps: list[Tensor],
    sizes: list[int],
    first: States,
    weights: Sequence[Tensor],
    biased: bool,
    backward: bool,
    projected: bool,
) -> tuple[list[Tensor], States]:
    """One layer in one direction; where the samples are of unequal lengths, the longest come first."""
    b_ih, b_hh = (weights[2], weights[3]) if biased else (None, None)
    order = range(len(steps) - 1, -1, -1) if backward else range(len(steps))
    states, outputs = first, [steps[0]] * len(steps)
    for t in order:
        size = sizes[t]
        # a product for each step, so that the samples of each are on an axis of their own
        now = tuple(own[:size] for own in states)
        gates = F.linear(steps[t], weights[0], b_ih), F.linear(now[0], weights[1], b_hh)
        new = cell(*gates, now)
        if projected:
            new = (F.linear(new[0], weights[-1]), *new[1:])
        outputs[t] = new[0]
        states = tuple(torch.cat([own, old[size:]]) for own, old in zip(new, states, strict=True))
    return outputs, states


def _single(cell: Cell) -> Callable[..., Any]:
    """One step of one layer."""

    def run(
        x: Tensor, hx: Any, w_ih: Tensor, w_hh: Tensor, b_ih: Tensor | None = None, b_hh: Tensor | None = None
    ) -> Any:
        states = hx if isinstance(hx, (tuple, list)) else (hx,)
        new = cell(F.linear(x, w_ih, b_ih), F.linear(states[0], w_hh, b_hh), tuple(states))
        return new if len(new) > 1 else new[0]

    return run


_CELLS: dict[str, Cell] = {"lstm": _lstm, "gru": _gru, "rnn_tanh": _tanh, "rnn_relu": _relu}

UNFUSED: dict[Any, Callable[..., Any]] = {
    **{getattr(torch._VF, name): _layer(cell) for name, cell in _CELLS.items()},
    **{getattr(torch._VF, f"{name}_cell"): _single(cell) for name, cell in _CELLS.items()},
}
"""Torch's fused functions, and what to run in their place."""
