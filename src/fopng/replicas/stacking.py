"""R runs made one: their weights `[R, p]`, their settings `[R]`, one model to ask them all with."""

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import fields, replace
from typing import Any, final

import torch
from torch import Tensor, nn

from fopng.methods.base import Method
from fopng.methods.optimizer import ContinualOptimizer
from fopng.parameters import ParamLayout
from fopng.replicas.convolution import ConvolutionsAsProducts


class NotStackable(ValueError):
    """These runs cannot be done side by side; one by one they can."""


def stack_methods(methods: Sequence[Method], device: torch.device) -> Method:
    """One method whose numeric settings differ by replica, `[R]` in float64, where they differ at all."""
    first = methods[0]
    changed: dict[str, Any] = {}
    for field in (field for field in fields(first) if field.init):
        values = [getattr(method, field.name) for method in methods]
        if all(value == values[0] for value in values):
            continue
        if not all(isinstance(value, float) for value in values):
            raise NotStackable(
                f"Expected one value of {field.name} for runs side by side, got {sorted(set(map(repr, values)))}. "
                "Only numbers that do not decide a size may differ."
            )
        changed[field.name] = torch.tensor(values, dtype=torch.float32, device=device)
    return replace(first, **changed)


def stack_rates(optimizers: Sequence[ContinualOptimizer], device: torch.device) -> float | Tensor:
    """The learning rate of all, or one a replica, `[R, 1]`."""
    rates = [float(optimizer.param_groups[0]["lr"]) for optimizer in optimizers]
    return rates[0] if len(set(rates)) == 1 else torch.tensor(rates, device=device).unsqueeze(-1)


@final
class StackedModel:
    """Models of one architecture with weights of their own, asked together under `torch.func.vmap`.

    Args:
        models: one a replica; the first lends its code, all lend their weights.
        layout: the flat order.
    """

    def __init__(self, models: Sequence[nn.Module], layout: ParamLayout) -> None:
        if any(True for _ in models[0].buffers()):
            raise NotStackable(
                f"{type(models[0]).__name__} keeps buffers (running statistics), which replicas would share. Run them one by one."
            )
        self.template, self.layout = models[0], layout
        self.theta = torch.stack(
            [layout.join({n: p.detach() for n, p in model.named_parameters()}) for model in models]
        )

    @property
    def count(self) -> int:
        """The number of replicas, R."""
        return self.theta.shape[0]

    def leaves(self) -> dict[str, Tensor]:
        """The weights by name, `[R, *shape]`, each a leaf that can be differentiated; they share memory with `theta`."""
        return {name: value.detach().requires_grad_() for name, value in self.layout.split(self.theta).items()}

    def __call__(self, weights: dict[str, Tensor], x: Tensor, task: int) -> Tensor:
        """Logits `[R, n, outputs]` of inputs `[R, n, ...]`."""

        def ask(own: dict[str, Tensor], inputs: Tensor) -> Tensor:
            return torch.func.functional_call(self.template, own, (inputs,), {"task": task})  # type: ignore[no-any-return]

        with ConvolutionsAsProducts() if x.is_cuda else nullcontext():
            return torch.func.vmap(ask, randomness="different")(weights, x)

    def logits(self, x: Tensor, task: int) -> Tensor:
        """Logits without a gradient, `[R, n, outputs]`."""
        with torch.no_grad():
            return self(self.layout.split(self.theta), x, task)
