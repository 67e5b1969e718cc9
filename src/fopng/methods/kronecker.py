"""What methods share that keep the old tasks' Fisher as a Kronecker product a layer."""

import json
from dataclasses import dataclass, field
from typing import Any, ClassVar, get_args

import torch
import torch.nn.functional as F
from torch import Tensor

from fopng.kronecker import KroneckerFisher, LayerBasis, Shrinkage, across
from fopng.likelihood import Signals
from fopng.methods.base import Method, TaskData, choose, is_count, require
from fopng.moments import LayerMoments, Moments
from fopng.parameters import ParamLayout
from fopng.pulling import Names


@dataclass(kw_only=True)
class KroneckerMemory(Method):
    """`F_old` over all tasks that are done: in each layer `(sum_t A_t) kron (sum_t G_t)`, elsewhere a sum of diagonals.

    Args:
        strength: s, how much `F_old` weighs against the identity.
        signals: what is sent back from the outputs for `G`.
        fisher_samples: how many samples the moments are taken on, drawn anew each time; None for all.
        rank: how many eigenvectors of a layer's inputs are kept exactly; None for all.
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
        inside = bool((torch.as_tensor(self.strength) >= 0).all())
        require(inside, f"Expected strength of at least 0, got {self.strength}.")
        choose("signals", self.signals, get_args(Signals))
        for name in ("fisher_samples", "rank"):
            value = getattr(self, name)
            require(value is None or is_count(value), f"Expected {name} of at least 1, or None for all, got {value}.")

    @property
    def variant(self) -> str:
        return f"signals={self.signals!r}"

    def end_task(self, task: TaskData) -> None:
        self.remember(task.moments(self.signals, self.fisher_samples))
        self.forget_derived()

    def remember(self, moments: Moments) -> None:
        """Add the moments of one more task to those of the others."""
        for names, own in moments.layers.items():
            for kind, value in (("inputs", own.inputs), ("signals", own.signals)):
                old = self._taken(kind, names, value.shape[-1])
                self.matrices[_key(kind, names)] = value if old is None else old + value
            self._bases.pop(names, None)
        rest = self.vectors.get("fisher_rest")
        self.vectors["fisher_rest"] = moments.rest if rest is None else rest + moments.rest

    def _taken(self, kind: str, names: Names, size: int) -> Tensor | None:
        """What is kept of a layer so far; one whose bias was frozen then knows nothing about it."""
        for known in (names, names[:1]):
            old = self.matrices.pop(_key(kind, known), None)
            if old is not None:
                self._bases.pop(known, None)
                missing = size - old.shape[-1]
                return F.pad(old, (0, missing, 0, missing)) if missing else old
        return None

    @property
    def remembers(self) -> bool:
        """Whether any task is done."""
        return "fisher_rest" in self.vectors

    @property
    def remover(self) -> Shrinkage | None:
        if self._shrinkage is None and self.remembers:
            s = self.strength
            left = self.old_fisher().map(lambda values: (1 + across(s, values) * values).reciprocal())
            self._shrinkage = Shrinkage(left)
        return self._shrinkage

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

    def _basis(self, names: Names) -> LayerBasis:
        if names not in self._bases:
            moments = LayerMoments(self.matrices[_key("inputs", names)], self.matrices[_key("signals", names)])
            self._bases[names] = LayerBasis.of(moments, bias=len(names) > 1, rank=self.rank)
        return self._bases[names]

    def forget_derived(self) -> None:
        self._old = self._shrinkage = None
        super().forget_derived()

    def load_state_dict(self, state: dict[str, Any], layout: ParamLayout, like: Tensor) -> None:
        self._bases = {}
        super().load_state_dict(state, layout, like)


def _key(kind: str, names: Names) -> str:
    return json.dumps([kind, *names])
