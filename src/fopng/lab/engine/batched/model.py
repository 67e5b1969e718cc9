"""R models as one: weights `[R, p]`, settings `[R]`, and one forward pass for all."""

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import Any, final

import torch
from torch import Tensor, nn

from fopng.core.kernels import usable
from fopng.core.layout import ParamLayout
from fopng.core.vector import Vector
from fopng.lab.benchmarks.dropout import DropoutKeys, draws_by_key, dropout_key
from fopng.lab.benchmarks.models import Network
from fopng.lab.engine.batched.products import LayersAsProducts
from fopng.lab.engine.precision import Precision
from fopng.optim.method import Method
from fopng.optim.settings import settings_of


class NotStackable(ValueError):
    """These runs cannot be batched; train them one by one."""


def stack_methods(
    methods: Sequence[Method[Any, Any]], device: torch.device, dtype: torch.dtype = torch.float32
) -> Method[Any, Any]:
    """One method whose numeric settings differ by replica, `[R]`, where they differ at all."""
    first = methods[0]
    changed: dict[str, Any] = {}
    for name, info in settings_of(type(first)).items():
        values = [getattr(method, name) for method in methods]
        if all(value == values[0] for value in values):
            continue
        if not info.per_replica or None in values:
            raise NotStackable(
                f"Expected one value of {name} for runs side by side, got {sorted(set(map(repr, values)))}. "
                "Only numbers that do not decide a size may differ."
            )
        changed[name] = torch.tensor(values, dtype=dtype, device=device)
    return replace(first, **changed)


def stack_rates(rates: Sequence[float], theta: Tensor) -> float | Tensor:
    """The learning rate of all, or one for each replica, `[R]`, on the device and in the precision of the weights."""
    return rates[0] if len(set(rates)) == 1 else theta.new_tensor(rates)


@final
class StackedModel:
    """Models of one architecture with weights of their own, run together under `torch.func.vmap`.

    Args:
        models: one per replica; the code is the first one's.
        layout: the flat order.
        dropout_seeds: one per replica, for the masks of `fopng.lab.benchmarks.dropout.Dropout`; by default the replica's number.
        precision: how the passes of a step are computed.

    Attributes:
        theta: the weights, `[R, p]`.
        weights: the same by name, `[R, *shape]`, in the same memory.
        step: how many steps are done, on the device; decides the dropout masks.
    """

    def __init__(
        self,
        models: Sequence[nn.Module],
        layout: ParamLayout,
        dropout_seeds: Sequence[int] | None = None,
        precision: Precision | None = None,
    ) -> None:
        if any(True for _ in models[0].buffers()):
            raise NotStackable(
                f"{type(models[0]).__name__} keeps buffers (running statistics), which replicas would share. Run them one by one."
            )
        fixed = {name: p for name, p in models[0].named_parameters() if name not in layout.shapes}
        if any(
            not torch.equal(dict(model.named_parameters())[name], p) for model in models for name, p in fixed.items()
        ):
            raise NotStackable(
                f"{type(models[0]).__name__} has frozen weights that differ by seed. Run them one by one."
            )
        self.template, self.layout = models[0], layout
        self.precision = Precision() if precision is None else precision
        self.theta = torch.stack(
            [
                layout.join({n: p.detach() for n, p in model.named_parameters() if n in layout.shapes})
                for model in models
            ]
        )
        self.weights = Vector(layout.split(self.theta), 1)
        self.step = torch.zeros((), dtype=torch.int64, device=self.theta.device)
        seeds = range(len(models)) if dropout_seeds is None else dropout_seeds
        self._keys = DropoutKeys(seeds, self.theta.device) if draws_by_key(self.template) else None

    @property
    def count(self) -> int:
        """The number of replicas, R."""
        return self.theta.shape[0]

    def leaves(self, theta: Tensor | None = None) -> dict[str, Tensor]:
        """The weights by name, `[R, *shape]`, each a leaf that can be differentiated; they share memory with `theta`."""
        split = self.weights.parts if theta is None else self.layout.split(theta)
        return {name: value.detach().requires_grad_() for name, value in split.items()}

    def heads(self, tasks: Sequence[int]) -> list[tuple[str, ...]] | None:
        """The parameters of each task's head; None where the network does not say, or where their shapes differ."""
        if not (isinstance(self.template, Network) and self.template.differs_in_heads_alone()):
            return None
        heads = [self.template.head_parameters(task) for task in tasks]
        shapes = {tuple(self.layout.shapes.get(name) for name in names) for names in heads}
        return heads if len(shapes) == 1 and None not in shapes.pop() else None

    def repeated(self, heads: Sequence[Sequence[str]]) -> Tensor:
        """The weights repeated for k heads, `[R k, p]`, each head moved to the place of the first."""
        wide = self.theta.repeat_interleave(len(heads), 0)
        own, places = self.weights.parts, self.layout.split(wide)
        for number, names in enumerate(heads):
            for first, name in zip(heads[0], names, strict=True):
                places[first][number :: len(heads)] = own[name]
        return wide

    def next_keys(self) -> Tensor | None:
        """The keys of this step's dropout, `[R]`; counts the step, all on the device. None without dropout."""
        if self._keys is None:
            return None
        keys = self._keys(self.step)
        self.step.add_(1)
        return keys

    def __call__(
        self,
        weights: dict[str, Tensor],
        x: Tensor,
        task: int,
        keys: Tensor | None,
        gradients: dict[str, Tensor] | None = None,
    ) -> Tensor:
        """Logits `[R, n, outputs]` of inputs `[R, n, ...]`, as a step computes them; `keys [R]` decide what is dropped.

        The backward pass may write the gradient of a weight into the tensor of its name in `gradients`, and return that.
        """
        with self.precision.passes(x.device):
            return self.answers(weights, x, task, keys, gradients)

    def logits(self, x: Tensor, task: int) -> Tensor:
        """Logits without a gradient, `[R, n, outputs]`."""
        with torch.no_grad():
            return self.answers(self.weights.parts, x, task, None)

    def answers(
        self,
        weights: dict[str, Tensor],
        x: Tensor,
        task: int,
        keys: Tensor | None,
        gradients: dict[str, Tensor] | None = None,
    ) -> Tensor:
        """Logits `[R, n, outputs]`, in the precision of the weights."""
        places = {weights[name].data_ptr(): place for name, place in (gradients or {}).items()}

        def ask(own: dict[str, Tensor], inputs: Tensor, key: Tensor | None) -> Tensor:
            with dropout_key(key):
                return torch.func.functional_call(self.template, own, (inputs,), {"task": task})  # type: ignore[no-any-return]

        # Random numbers are an error: what a replica draws must not depend on the others.
        with LayersAsProducts(places) if x.is_cuda or usable(x) else nullcontext():
            return torch.func.vmap(ask, (0, 0, None if keys is None else 0), randomness="error")(weights, x, keys)
