"""Run a model with given parameters, one replica or many, and record each layer's calls. Leaves the model unchanged."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from fopng.core.batch import Batch, Predict, map_tensors, sample_count, tensors_of
from fopng.core.layout import ParamLayout
from fopng.core.vector import Vector
from fopng.gradients.fallback import ignore_slow_vmap
from fopng.gradients.hooks import LayerRecorder, ModuleCall, TracedModule

State = dict[str, Tensor]
"""Tensors of a model by their names."""


@dataclass(frozen=True)
class ForwardTrace:
    """A forward pass with recorded layers.

    Args:
        outputs: `[*lead, n, ...]`.
        targets: what predict gave beside them.
        calls: of the recorded modules, in order.
        values: the parameters that are differentiated, `[*lead, *shape]`.
        rest: all other parameters, and copies of the buffers.
        lead: the number of replica axes.
    """

    outputs: Tensor
    targets: Tensor | None
    calls: list[ModuleCall]
    values: State
    rest: State
    lead: int

    @property
    def count(self) -> int:
        """The number of samples, n."""
        return self.outputs.shape[self.lead]


class TracedModel(nn.Module):
    """A model together with its predict function, as one module: `forward(batch) -> (outputs, targets)`.

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

    def values(self, layout: ParamLayout, parameters: Vector | None) -> State:
        """The parameters to differentiate: the model's own, or others given for them."""
        if parameters is not None:
            return {name: parameters[name].detach() for name in layout.shapes}
        return {name: p.detach() for name, p in self.model.named_parameters() if name in layout.shapes}

    def rest(self, layout: ParamLayout) -> State:
        """All other parameters, and copies of the buffers, so that a model that counts its calls is left as it was."""
        buffers = {name: buffer.detach().clone() for name, buffer in self.model.named_buffers()}
        fixed = {name: p.detach() for name, p in self.model.named_parameters() if name not in layout.shapes}
        return buffers | fixed

    def run(self, values: State, rest: State, batch: Batch) -> tuple[Tensor, Tensor | None]:
        """Answer a batch with these parameters."""
        state = {f"model.{name}": value for name, value in (rest | values).items()}
        outputs, targets = torch.func.functional_call(self, state, (batch,))
        if not isinstance(outputs, Tensor):
            raise TypeError(
                f"Expected predict to return (outputs, targets), tensors both, got a {type(outputs).__name__}."
            )
        return outputs, targets

    def trace(
        self, modules: Sequence[TracedModule], values: State, rest: State, batch: Batch, lead: int
    ) -> ForwardTrace:
        """Answer a batch while the modules are recorded."""
        # a model may change its input in place, and the first layer's input is kept
        batch = map_tensors(torch.clone, batch)
        if lead == 0:
            with LayerRecorder(modules) as recorder:
                outputs, targets = self.run(values, rest, batch)
            trace = ForwardTrace(outputs, targets, recorder.calls, values, rest, lead)
        else:
            trace = self._trace_replicas(modules, values, rest, batch, lead)
        n, found = sample_count(batch, lead), trace.outputs.shape
        if len(found) <= lead or found[lead] != n:
            raise ValueError(
                f"Expected outputs with a row a sample ({n} samples), got shape {tuple(found)} from "
                f"{type(self.model).__name__}. Let predict return [samples, ...]."
            )
        return trace

    def _trace_replicas(
        self, modules: Sequence[TracedModule], values: State, rest: State, batch: Batch, lead: int
    ) -> ForwardTrace:
        """Run all replicas at once under `vmap`; the first one, run alone, tells the shapes of the zeros."""
        replicas = next(iter(values.values())).shape[:lead]
        first = self.trace(modules, first_replica(values, lead), rest, first_replica(batch, lead), 0)
        zeros = [
            torch.zeros((), dtype=zero.dtype, device=zero.device, requires_grad=True).expand(*replicas, *zero.shape)
            for call in first.calls
            for zero in call.zeros
        ]

        def run(values: State, zeros: list[Tensor], tensors: list[Tensor]) -> tuple[Any, ...]:
            given = iter(tensors)
            with LayerRecorder(modules, zeros) as recorder:
                outputs, targets = self.run(values, rest, map_tensors(lambda _: next(given), batch))
            return outputs, () if targets is None else targets, [call.records for call in recorder.calls]

        for _ in range(lead):
            run = torch.func.vmap(run)
        try:
            with ignore_slow_vmap():
                outputs, targets, records = run(values, zeros, tensors_of(batch))
        except torch.OutOfMemoryError:
            raise
        except RuntimeError as failure:
            raise RuntimeError(
                f"{type(self.model).__name__} cannot be asked for {replicas.numel()} replicas at once, because torch.func.vmap "
                f"cannot take it: {failure} Ask the replicas one by one."
            ) from failure
        supply = iter(zeros)
        calls = [
            ModuleCall(call.module, call.form, kept, tuple(next(supply) for _ in call.zeros))
            for call, kept in zip(first.calls, records, strict=True)
        ]
        return ForwardTrace(outputs, None if isinstance(targets, tuple) else targets, calls, values, rest, lead)

    def local_state(self, module: nn.Module, trace: ForwardTrace) -> tuple[State, State]:
        """What a module inside the model holds, by the module's own names: values to differentiate, and the rest."""
        named = [*self.model.named_parameters(), *self.model.named_buffers()]
        names = {id(tensor): name for name, tensor in named}
        own = [*module.named_parameters(), *module.named_buffers()]
        local = {here: names[id(tensor)] for here, tensor in own if id(tensor) in names}
        values = {here: trace.values[name] for here, name in local.items() if name in trace.values}
        return values, {here: trace.rest[name] for here, name in local.items() if name in trace.rest}


def first_replica(batch: Batch, lead: int) -> Batch:
    """Pick the first of all replicas from tensors `[*lead, ...]`."""
    return map_tensors(lambda tensor: tensor[(0,) * lead], batch)


@contextmanager
def undisturbed(model: nn.Module) -> Iterator[None]:
    """Let a model be run without a trace: dropout off, modes and random states put back afterwards."""
    modes = [(module, module.training) for module in model.modules()]
    held = [(module, dict(module._parameters), dict(module._buffers)) for module, _ in modes]
    recurrent = [
        (module, list(module._flat_weights), list(module._flat_weight_refs))
        for module, _ in modes
        if isinstance(module, nn.RNNBase)
    ]
    devices = {p.device for p in model.parameters() if p.device.type == "cuda"}
    fast = torch.backends.mha.get_fastpath_enabled()
    with ExitStack() as stack:
        stack.enter_context(torch.random.fork_rng([device.index for device in devices]))
        stack.enter_context(torch.inference_mode(False))
        stack.enter_context(torch.enable_grad())
        # fused attention cannot be mapped over samples
        stack.enter_context(sdpa_kernel(SDPBackend.MATH))
        if recurrent:
            # cuDNN differentiates recurrent layers in training mode only
            stack.enter_context(torch.backends.cudnn.flags(enabled=False))
        try:
            model.eval()
            # the fused path of the transformer layers would answer without calling the layers inside
            torch.backends.mha.set_fastpath_enabled(False)
            yield
        finally:
            torch.backends.mha.set_fastpath_enabled(fast)
            for module, training in modes:
                module.training = training
            for module, parameters, buffers in held:
                # functional_call forgets to put a module's own back where it stands under two parents
                module._parameters.update(parameters)
                module._buffers.update(buffers)
            for module, weights, references in recurrent:
                # functional_call leaves the tensors that it was given behind, from which no gradient comes back
                module._flat_weights, module._flat_weight_refs = weights, references
