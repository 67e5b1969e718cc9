"""Parameters that got more rows (a classifier with more classes): what is known of the old rows stays, the new ones are zero."""

import json

from torch import Tensor
from torch.nn.functional import pad

from fopng.core.layout import ParamLayout
from fopng.memory.gradients import GradientMemory


def check_grown(old: ParamLayout, new: ParamLayout) -> None:
    """Raise unless every parameter of `old` has its shape in `new`, or more rows of it."""
    for name, shape in old.shapes.items():
        found = new.shapes.get(name)
        if found is None or found[1:] != shape[1:] or found[:1] < shape[:1]:
            given = "none" if found is None else tuple(found)
            raise ValueError(
                f"Expected {name!r} of shape {tuple(shape)}, or with more rows, got {given}. Make a new optimizer."
            )


def grow_vector(flat: Tensor, old: ParamLayout, new: ParamLayout) -> Tensor:
    """Carry a vector over, `[..., p] -> [..., p_new]`."""
    named = old.split(flat)
    return new.join({name: _with_rows(named[name], old, new, name) for name in old.names})


def grow_memory(memory: GradientMemory, new: ParamLayout) -> GradientMemory:
    """The same gradients of more parameters. Exact for stored logits: new rows of a classifier have no part in old ones."""
    state = {}
    for key, tensor in memory.state_dict().items():
        if key in ("shares", "dropped", "error"):
            state[key] = tensor
        else:
            names, _, kind = json.loads(key)
            state[key] = _grow_held(tensor, kind, names, memory.layout, new)
    grown = GradientMemory(new, capacity=memory.capacity)
    grown.load_state_dict(state)
    return grown


def _grow_held(held: Tensor, kind: str, names: list[str], old: ParamLayout, new: ParamLayout) -> Tensor:
    """One tensor of a layer: inputs stay, signals get an entry for each new row, what is written out gets the rows."""
    if kind in ("a", "ones"):
        return held
    if kind == "d":
        return pad(held, (0, new.shapes[names[0]][0] - old.shapes[names[0]][0]))
    layer, larger = (ParamLayout({name: layout.shapes[name] for name in names}) for layout in (old, new))
    return grow_vector(held, layer, larger)


def _with_rows(value: Tensor, old: ParamLayout, new: ParamLayout, name: str) -> Tensor:
    shape, larger = old.shapes[name], new.shapes[name]
    if shape == larger:
        return value
    return pad(value, (0, 0) * (len(shape) - 1) + (0, larger[0] - shape[0]))
