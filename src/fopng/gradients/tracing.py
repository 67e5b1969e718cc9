"""Run a model with given parameters, one replica or many, and record where they are used. Leaves the model unchanged."""

import warnings
from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from fopng.core.batch import Batch, Predict, map_tensors, sample_count, tensors_of
from fopng.core.layout import ParamLayout
from fopng.core.vector import Vector
from fopng.gradients.capture import Capture, FirstCapture, ReplayedCapture, SiteCall
from fopng.gradients.places import Places

State = dict[str, Tensor]
"""Tensors of a model by their names."""


@dataclass(frozen=True)
class ForwardTrace:
    """A forward pass with recorded uses of parameters.

    Args:
        outputs: `[*lead, n, ...]`.
        targets: what predict gave beside them.
        calls: the uses that have a closed form, in order.
        touched: the parameters that were used, in whatever way.
        batch: the samples.
        values: the parameters that are differentiated, `[*lead, *shape]`.
        rest: all other parameters, and copies of the buffers.
        lead: the number of replica axes.
    """

    outputs: Tensor
    targets: Tensor | None
    calls: list[SiteCall]
    touched: set[str]
    batch: Batch
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

    def trace(self, values: State, rest: State, batch: Batch, lead: int) -> ForwardTrace:
        """Answer a batch while the uses of the parameters are recorded."""
        # a model may change its input in place, and the first layer's input is kept
        given, batch = batch, map_tensors(torch.clone, batch)
        n = sample_count(batch, lead)
        # what is looked up in the first run must not be changed in place by it
        alone = batch if lead == 0 else map_tensors(torch.clone, first_replica(batch, lead))
        shared = partial(_is_shared, n=n, given=_memory_of(alone))
        first = FirstCapture(Places(first_replica_of(values, lead)), shared)
        if lead == 0:
            outputs, targets, calls = *self._captured(first, values, rest, batch), first.calls
        else:
            outputs, targets, calls = self._trace_replicas(first, alone, values, rest, batch, lead)
        self._rows(outputs, targets, n, lead)
        return ForwardTrace(outputs, targets, calls, first.touched, given, values, rest, lead)

    def answer(self, values: State, rest: State, batch: Batch, lead: int) -> tuple[Tensor, Tensor | None]:
        """Answer a batch, and record nothing."""
        batch = map_tensors(torch.clone, batch)
        if lead == 0:
            return self._rows(*self.run(values, rest, batch), sample_count(batch), 0)

        def run(values: State, tensors: list[Tensor]) -> tuple[Any, ...]:
            given = iter(tensors)
            outputs, targets = self.run(values, rest, map_tensors(lambda _: next(given), batch))
            return outputs, () if targets is None else targets

        count = next(iter(values.values())).shape[:lead].numel()
        outputs, targets = self._mapped(run, lead, count)(values, tensors_of(batch))
        targets = None if isinstance(targets, tuple) else targets
        return self._rows(outputs, targets, sample_count(batch, lead), lead)

    def _mapped(self, run: Callable[..., Any], lead: int, count: int) -> Callable[..., Any]:
        """A function of one replica as one of all of them."""
        for _ in range(lead):
            run = torch.func.vmap(run)

        def all_at_once(*args: Any) -> Any:
            try:
                with ignore_slow_vmap():
                    return run(*args)
            except torch.OutOfMemoryError:
                raise
            except RuntimeError as failure:
                raise RuntimeError(
                    f"{type(self.model).__name__} cannot be asked for {count} replicas at once, because torch.func.vmap "
                    f"cannot take it: {failure} Ask the replicas one by one."
                ) from failure

        return all_at_once

    def _rows(self, outputs: Tensor, targets: Tensor | None, n: int, lead: int) -> tuple[Tensor, Tensor | None]:
        """Raise where outputs do not have a row for each sample."""
        if len(outputs.shape) <= lead or outputs.shape[lead] != n:
            raise ValueError(
                f"Expected outputs with a row a sample ({n} samples), got shape {tuple(outputs.shape)} from "
                f"{type(self.model).__name__}. Let predict return [samples, ...]."
            )
        return outputs, targets

    def _captured(self, capture: Capture, values: State, rest: State, batch: Batch) -> tuple[Tensor, Tensor | None]:
        with cast(AbstractContextManager[object], capture):
            return self.run(values, rest, batch)

    def _trace_replicas(
        self, first: FirstCapture, alone: Batch, values: State, rest: State, batch: Batch, lead: int
    ) -> tuple[Tensor, Tensor | None, list[SiteCall]]:
        """Run all replicas at once under `vmap`; the first one, run alone, tells what is recorded."""
        replicas = next(iter(values.values())).shape[:lead]
        self._captured(first, first_replica_of(values, lead), rest, alone)
        zeros = [
            torch.zeros((), dtype=zero.dtype, device=zero.device, requires_grad=True).expand(*replicas, *zero.shape)
            for zero in (call.zero for call in first.calls)
        ]

        def run(values: State, zeros: list[Tensor], tensors: list[Tensor]) -> tuple[Any, ...]:
            given = iter(tensors)
            replayed = ReplayedCapture(first.script, zeros)
            outputs, targets = self._captured(replayed, values, rest, map_tensors(lambda _: next(given), batch))
            return outputs, () if targets is None else targets, [call.record for call in replayed.calls]

        outputs, targets, records = self._mapped(run, lead, replicas.numel())(values, zeros, tensors_of(batch))
        calls = [
            SiteCall(call.site, record, zero) for call, record, zero in zip(first.calls, records, zeros, strict=True)
        ]
        return outputs, None if isinstance(targets, tuple) else targets, calls


def _is_shared(rows: Tensor, n: int, given: Collection[int]) -> bool:
    """Whether rows of a table are looked up for all samples at once: `[1, t]` or `[t]`.

    Args:
        rows: that.
        n: the number of samples; of one alone the shape does not tell.
        given: where the samples' own tensors are in memory.
    """
    if n == 1 and rows.dim() > 1:
        return rows.shape[0] == 1 and rows.untyped_storage().data_ptr() not in given
    return rows.dim() > 0 and rows.shape[0] != n and (rows.dim() == 1 or rows.shape[0] == 1)


def _memory_of(batch: Batch) -> set[int]:
    return {tensor.untyped_storage().data_ptr() for tensor in tensors_of(batch)}


def first_replica_of(values: State, lead: int) -> State:
    """The parameters of the first of all replicas."""
    return {name: value[(0,) * lead] for name, value in values.items()} if lead else values


def first_replica(batch: Batch, lead: int) -> Batch:
    """Pick the first of all replicas from tensors `[*lead, ...]`."""
    return map_tensors(lambda tensor: tensor[(0,) * lead], batch)


@contextmanager
def ignore_slow_vmap() -> Iterator[None]:
    """Do without torch's warning that it loops inside over an operation that it cannot map."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "There is a performance drop")
        yield


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
