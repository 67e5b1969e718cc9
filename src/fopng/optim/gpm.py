"""Gradient Projection Memory (Saha et al., 2021)."""

import json
from abc import abstractmethod
from dataclasses import dataclass, field
from typing import ClassVar, final

import torch
from torch import Tensor, nn

from fopng.core.batch import Predict
from fopng.core.likelihood import Likelihood
from fopng.curvature.moments import matrix_key, moment_numbers
from fopng.gradients.backward import Names
from fopng.memory.input_subspace import LayerwiseProjector, Subspace
from fopng.optim.method import Method, TaskData
from fopng.optim.optimizer import ContinualOptimizer, FirstTask, Groups
from fopng.optim.ranges import COUNT_OR_ALL, SHARE, SOME_SHARE


@dataclass(kw_only=True)
class InputMemory(Method):
    """`v = eta (g - g M Lambda M^T)`, layer by layer: nothing along what old tasks gave a layer.

    Parameters outside Linear and Conv layers (normalisations, embeddings) that an old task used do not move any more
    (docs/deviations.md, 21).

    Args:
        threshold: epsilon, the share of the squared length of a layer's inputs that is enough.
        threshold_growth: what is added to it with each task.
        input_samples: how many samples the inputs are taken of; None for all.
    """

    threshold: float | Tensor
    threshold_growth: float | Tensor
    input_samples: int | None

    estimates: ClassVar[bool] = True
    matrices_of_inputs: ClassVar[bool] = True

    _projector: LayerwiseProjector | None = field(default=None, init=False, repr=False)

    def check(self) -> None:
        super().check()
        SOME_SHARE.check(self, "threshold")
        SHARE.check(self, "threshold_growth")
        COUNT_OR_ALL.check(self, "input_samples")

    @abstractmethod
    def weigh(self, values: Tensor, old: Tensor) -> Tensor:
        """The importance of directions, from their singular values in the latest task and their importance before."""

    def update(self, g: Tensor, *, lr: float | Tensor, theta: Tensor | None) -> Tensor:
        # the rate first: where it differs within a layer, it must not bend what is projected
        v = lr * g
        if self.remover is None:
            return v
        left = self.remover(v)
        return left if self.active is None else left * self.active_mask(left)

    def end_task(self, task: TaskData) -> None:
        moments = task.input_moments(self.input_samples)
        used = {name for block in task.gradients(1, "average") for names in block.layers for name in names}
        done = self.matrices.get("tasks")
        count = next(iter(moments.values())).new_zeros(()) if done is None else done
        threshold = torch.as_tensor(self.threshold + self.threshold_growth * count).clamp(max=1.0)
        for names, moment in moments.items():
            space = self._known(names, moment).learnt(moment, threshold=threshold, weigh=self.weigh)
            self.matrices |= {
                matrix_key("basis", names): space.basis,
                matrix_key("importance", names): space.importance,
            }
        self.vectors["frozen"] = self._frozen(used, count)
        self.matrices["tasks"] = count + 1
        self.forget_derived()

    def _known(self, names: Names, moment: Tensor) -> Subspace:
        """What is known about a layer; one whose bias was frozen before knows nothing about that."""
        for known in (names, names[:1]):
            basis = self.matrices.pop(matrix_key("basis", known), None)
            if basis is not None:
                return Subspace(basis, self.matrices.pop(matrix_key("importance", known))).widened(moment.shape[-1])
        return Subspace.empty(moment)

    def _frozen(self, used: set[str], like: Tensor) -> Tensor:
        """Which parameters stay, `[p]`: those that a task has used and no layer with inputs answers for."""
        old = self.vectors.get("frozen")
        frozen = torch.zeros(self.layout.size, dtype=like.dtype, device=like.device) if old is None else old.clone()
        covered = {name for names in self._layers() for name in names}
        for name in self.layout.names:
            if name in covered or name in used:
                frozen[self.layout.slices[name]] = float(name not in covered)
        return frozen

    def _layers(self) -> list[Names]:
        keys = [json.loads(key) for key in self.matrices if key != "tasks"]
        return [tuple(names) for kind, *names in keys if kind == "basis"]

    @property
    def remover(self) -> LayerwiseProjector | None:
        if self._projector is None and "frozen" in self.vectors:
            layers = {
                names: Subspace(
                    self.matrices[matrix_key("basis", names)], self.matrices[matrix_key("importance", names)]
                )
                for names in self._layers()
                if self.active is None or not self.active.isdisjoint(names)
            }
            self._projector = LayerwiseProjector(self.layout, layers, self.vectors["frozen"])
        return self._projector

    def matrix_numbers(self) -> int:
        # in float64, while a layer is taken apart
        return 12 * moment_numbers(self.layout)

    def forget_derived(self) -> None:
        self._projector = None
        super().forget_derived()


@final
@dataclass(kw_only=True)
class GPMMethod(InputMemory):
    """Every direction counts fully: `Lambda = I`."""

    def weigh(self, values: Tensor, old: Tensor) -> Tensor:
        return torch.ones_like(values)


@final
class GPM(ContinualOptimizer):
    """Gradient Projection Memory: SGD on what is orthogonal to the inputs that old tasks gave each layer.

    When a task ends, the main directions of what each Linear and Conv layer was given join its memory, which is never larger than
    the layer is wide, squared. Gradients of scores, labels and Fishers play no part.

    Args:
        model: the model to train.
        lr: eta, the learning rate.
        threshold: epsilon, the share of the squared length of each layer's inputs that a task must leave in the memory.
        threshold_growth: how much higher it is with each task, up to 1.
        input_samples: samples whose inputs are looked at when a task ends, drawn anew each time; None for all.
        momentum: how much of the running sum of gradients is kept each step, before it is projected.
        first_task: the optimizer that steps until the first `end_task`; None for the method itself, "own" for the method itself.
        predict: how the model answers a batch, `predict(model, batch) -> (outputs, targets)`; `model(x)` on `(x, y)` by default.
        likelihood: what the outputs mean: `Categorical` (default; also of tokens), `Bernoulli`, `Gaussian`.
        groups: parameters with a learning rate of their own, `[{"params": ..., "lr": ...}]`.
        generator: draws samples; by default one seeded like torch's own.
    """

    def __init__(
        self,
        model: nn.Module,
        lr: float,
        *,
        threshold: float = 0.95,
        threshold_growth: float = 0.0,
        input_samples: int | None = 300,
        momentum: float = 0.0,
        first_task: FirstTask = None,
        predict: Predict | None = None,
        likelihood: Likelihood | None = None,
        groups: Groups | None = None,
        generator: torch.Generator | None = None,
    ) -> None:
        method = GPMMethod(
            momentum=momentum, threshold=threshold, threshold_growth=threshold_growth, input_samples=input_samples
        )
        super().__init__(model, lr, method, first_task, predict, likelihood, groups, generator)
