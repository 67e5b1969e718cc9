"""What methods share that keep the old tasks' Fisher as a Kronecker product a layer."""

import json
from dataclasses import dataclass, field
from typing import Any, ClassVar, get_args

import torch
import torch.nn.functional as F
from torch import Tensor

from fopng.core.layout import ParamLayout
from fopng.core.likelihood import Signals
from fopng.curvature.kronecker import KroneckerFisher, LayerBasis, Shrinkage, across
from fopng.curvature.moments import LayerMoments, Moments, matrix_key, moment_numbers, trace
from fopng.gradients.backward import Names
from fopng.optim.method import TaskData
from fopng.optim.ranges import AT_LEAST_0, COUNT_OR_ALL, choose
from fopng.optim.weight_averaging import SettlingMethod


@dataclass(kw_only=True)
class KroneckerMemory(SettlingMethod):
    """`F_old`, the sum over all tasks that are done: a Kronecker product in each layer, diagonal elsewhere.

    `sum_t A_t kron G_t` is taken for `A kron G` with `A = sum_t A_t` and `G` the mean of the `G_t`, weighted with the traces of
    the `A_t`: the sum's trace, and its partial trace over the inputs, are exact.

    Args:
        strength: s, how much `F_old` weighs against the identity.
        signals: what is sent back from the outputs for `G`.
        fisher_samples: how many samples the moments are taken on, drawn anew each time; None for all.
        rank: how many eigenvectors of a layer's inputs are kept, the others share one eigenvalue; None for all.
    """

    strength: float | Tensor
    signals: Signals
    fisher_samples: int | None
    rank: int | None

    estimates: ClassVar[bool] = True

    _bases: dict[Names, LayerBasis] = field(default_factory=dict, init=False, repr=False)
    _old: KroneckerFisher | None = field(default=None, init=False, repr=False)
    _shrinkage: Shrinkage | None = field(default=None, init=False, repr=False)

    def check(self) -> None:
        super().check()
        AT_LEAST_0.check(self, "strength")
        choose("signals", self.signals, get_args(Signals))
        COUNT_OR_ALL.check(self, "fisher_samples", "rank")

    @property
    def variant(self) -> str:
        return f"signals={self.signals!r}"

    def keep(self, task: TaskData) -> None:
        self.remember(self.measure(task))
        self.forget_derived()

    def measure(self, task: TaskData) -> Moments:
        """The moments of the task at hand."""
        return task.moments(self.signals, self.fisher_samples)

    def remember(self, moments: Moments) -> None:
        """Add the moments of one more task to those of the others."""
        for names, own in moments.layers.items():
            old = self._taken(names, own.inputs.shape[-1])
            total = own if old is None else _sum(old, own)
            self.matrices |= {matrix_key("inputs", names): total.inputs, matrix_key("signals", names): total.signals}
        rest = self.vectors.get("fisher_rest")
        self.vectors["fisher_rest"] = moments.rest if rest is None else rest + moments.rest
        done = self.matrices.get(matrix_key("tasks"), moments.rest.new_zeros(()))
        self.matrices[matrix_key("tasks")] = done + 1

    def tasks(self) -> Tensor:
        """How many tasks are done, at least one."""
        return self.matrices[matrix_key("tasks")]

    def _taken(self, names: Names, size: int) -> LayerMoments | None:
        """What is kept of a layer so far; one whose bias was frozen then knows nothing about it."""
        for known in (names, names[:1]):
            A = self.matrices.pop(matrix_key("inputs", known), None)
            if A is not None:
                self._bases.pop(known, None)
                missing = size - A.shape[-1]
                return LayerMoments(F.pad(A, (0, missing, 0, missing)), self.matrices.pop(matrix_key("signals", known)))
        return None

    def matrix_numbers(self) -> int:
        # what is kept, what a task adds to it, and both while they are taken apart
        return 4 * moment_numbers(self.layout)

    @property
    def remembers(self) -> bool:
        """Whether any task is done."""
        return "fisher_rest" in self.vectors

    @property
    def remover(self) -> Shrinkage | None:
        if self._shrinkage is None and self.remembers:
            s = self.weight()
            left = self.old_fisher().map(lambda values: (1 + across(s, values) * values).reciprocal())
            self._shrinkage = Shrinkage(left)
        return self._shrinkage

    def weight(self) -> float | Tensor:
        """What `F_old` is multiplied with: the strength, in units of the method's own."""
        return self.strength

    def held_back(self, g: Tensor) -> Tensor:
        """`(I + s F_old)^-1 g`: `[..., p] -> [..., p]`; the gradient itself before any task is done."""
        return g if self.remover is None else self.remover(g)

    def old_fisher(self) -> KroneckerFisher:
        """`F_old` in the parameters that take part; eigenvectors are worked out again only where a layer's moments changed."""
        if self._old is None:
            layers = {
                names: self._basis(names)
                for names in self.layers()
                if self.active is None or not self.active.isdisjoint(names)
            }
            self._old = KroneckerFisher(self.layout, layers, self.vectors["fisher_rest"])
        return self._old

    def layers(self) -> list[Names]:
        """The layers that an old task has used, by their parameters."""
        return [tuple(names) for kind, *names in map(json.loads, self.matrices) if kind == "inputs"]

    def used(self) -> Tensor | None:
        if not self.remembers:
            return None
        mask = self.vectors["fisher_rest"] > 0
        for names in self.layers():
            mask[..., self.layout.span(names)] = True
        return mask

    def _basis(self, names: Names) -> LayerBasis:
        if names not in self._bases:
            moments = LayerMoments(
                self.matrices[matrix_key("inputs", names)], self.counted(self.matrices[matrix_key("signals", names)])
            )
            self._bases[names] = LayerBasis.of(moments, bias=len(names) > 1, rank=self.rank)
        return self._bases[names]

    def counted(self, signals: Tensor) -> Tensor:
        """The `G [..., o, o]` that is held on to, given the one that was measured; its trace is the same."""
        return signals

    def forget_derived(self) -> None:
        self._old = self._shrinkage = None
        super().forget_derived()

    def load_state_dict(self, state: dict[str, Any], layout: ParamLayout, like: Tensor) -> None:
        self._bases = {}
        super().load_state_dict(state, layout, like)


def _sum(old: LayerMoments, new: LayerMoments) -> LayerMoments:
    """A Kronecker product for the sum of two, with its trace: inputs' moments added up, signals' averaged by the inputs' traces."""
    share = trace(new.inputs) / (trace(old.inputs) + trace(new.inputs)).clamp(min=torch.finfo(new.inputs.dtype).tiny)
    return LayerMoments(old.inputs + new.inputs, torch.lerp(old.signals, new.signals, share[..., None, None]))
