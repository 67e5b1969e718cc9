"""Asking a model: any parameters, one replica or many, without a trace, while its layers are listened to."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from fopng.core.batch import Batch, Predict, map_tensors, sample_count, tensors_of
from fopng.core.layout import ParamLayout
from fopng.gradients.hooks import Call, Site, Taps
from fopng.gradients.rules import slow_but_right

State = dict[str, Tensor]
"""Tensors of a model by their names."""


@dataclass(frozen=True)
class Recording:
    """A forward pass that was listened to.

    Args:
        outputs: `[*lead, n, ...]`.
        targets: what predict gave beside them.
        calls: of the sites, in order.
        values: the parameters that are differentiated, `[*lead, *shape]`.
        rest: all other parameters, and copies of the buffers.
        lead: the number of replica axes.
    """

    outputs: Tensor
    targets: Tensor | None
    calls: list[Call]
    values: State
    rest: State
    lead: int

    @property
    def count(self) -> int:
        """The number of samples, n."""
        return self.outputs.shape[self.lead]


class Asked(nn.Module):
    """A model together with the way it is asked, as one module: `forward(batch) -> (outputs, targets)`.

    Args:
        model: the model.
        predict: how it answers a batch.
    """

    def __init__(self, model: nn.Module, predict: Predict) -> None:
        super().__init__()
        self.model = model
        self._predict = predict

    def forward(self, batch: Batch) -> tuple[Tensor, Tensor | None]:
        return self._predict(self.model, batch)

    def values(self, layout: ParamLayout, parameters: Tensor | None) -> State:
        """The parameters to differentiate: the model's own, or those of a flat vector `[*lead, p]`."""
        if parameters is not None:
            return layout.split(parameters.detach())
        return {name: p.detach() for name, p in self.model.named_parameters() if name in layout.shapes}

    def rest(self, layout: ParamLayout) -> State:
        """All other parameters, and copies of the buffers, so that a model that counts its calls is left as it was."""
        buffers = {name: buffer.detach().clone() for name, buffer in self.model.named_buffers()}
        fixed = {name: p.detach() for name, p in self.model.named_parameters() if name not in layout.shapes}
        return buffers | fixed

    def answer(self, values: State, rest: State, batch: Batch) -> tuple[Tensor, Tensor | None]:
        """Answer a batch with these parameters."""
        state = {f"model.{name}": value for name, value in (rest | values).items()}
        outputs, targets = torch.func.functional_call(self, state, (batch,))
        if not isinstance(outputs, Tensor):
            raise TypeError(
                f"Expected predict to return (outputs, targets), tensors both, got a {type(outputs).__name__}."
            )
        return outputs, targets

    def record(self, sites: Sequence[Site], values: State, rest: State, batch: Batch, lead: int) -> Recording:
        """Answer a batch while the sites are listened to."""
        # a model may change its input in place, and the first layer's input is kept
        batch = map_tensors(torch.clone, batch)
        if lead == 0:
            with Taps(sites) as taps:
                outputs, targets = self.answer(values, rest, batch)
            recording = Recording(outputs, targets, taps.calls, values, rest, lead)
        else:
            recording = self._record_replicas(sites, values, rest, batch, lead)
        n, found = sample_count(batch, lead), recording.outputs.shape
        if len(found) <= lead or found[lead] != n:
            raise ValueError(
                f"Expected outputs with a row a sample ({n} samples), got shape {tuple(found)} from "
                f"{type(self.model).__name__}. Let predict return [samples, ...]."
            )
        return recording

    def _record_replicas(self, sites: Sequence[Site], values: State, rest: State, batch: Batch, lead: int) -> Recording:
        """Ask all replicas at once under `vmap`; the first one, asked alone, tells the shapes of the zeros."""
        replicas = next(iter(values.values())).shape[:lead]
        first = self.record(sites, first_replica(values, lead), rest, first_replica(batch, lead), 0)
        zeros = [
            torch.zeros((), dtype=zero.dtype, device=zero.device, requires_grad=True).expand(*replicas, *zero.shape)
            for call in first.calls
            for zero in call.zeros
        ]

        def ask(values: State, zeros: list[Tensor], tensors: list[Tensor]) -> tuple[Any, ...]:
            given = iter(tensors)
            with Taps(sites, zeros) as taps:
                outputs, targets = self.answer(values, rest, map_tensors(lambda _: next(given), batch))
            return outputs, () if targets is None else targets, [call.records for call in taps.calls]

        for _ in range(lead):
            ask = torch.func.vmap(ask)
        try:
            with slow_but_right():
                outputs, targets, records = ask(values, zeros, tensors_of(batch))
        except torch.OutOfMemoryError:
            raise
        except RuntimeError as failure:
            raise RuntimeError(
                f"{type(self.model).__name__} cannot be asked for {replicas.numel()} replicas at once, because torch.func.vmap "
                f"cannot take it: {failure} Ask the replicas one by one."
            ) from failure
        supply = iter(zeros)
        calls = [
            Call(call.site, call.form, kept, tuple(next(supply) for _ in call.zeros))
            for call, kept in zip(first.calls, records, strict=True)
        ]
        return Recording(outputs, None if isinstance(targets, tuple) else targets, calls, values, rest, lead)

    def local_state(self, module: nn.Module, recording: Recording) -> tuple[State, State]:
        """What a module inside the model holds, by the module's own names: values to differentiate, and the rest."""
        named = [*self.model.named_parameters(), *self.model.named_buffers()]
        names = {id(tensor): name for name, tensor in named}
        own = [*module.named_parameters(), *module.named_buffers()]
        local = {here: names[id(tensor)] for here, tensor in own if id(tensor) in names}
        values = {here: recording.values[name] for here, name in local.items() if name in recording.values}
        return values, {here: recording.rest[name] for here, name in local.items() if name in recording.rest}


def first_replica(batch: Batch, lead: int) -> Batch:
    """Pick the first of all replicas from tensors `[*lead, ...]`."""
    return map_tensors(lambda tensor: tensor[(0,) * lead], batch)
