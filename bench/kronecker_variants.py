"""Variants of `fopng-k` that were tried and are no options (docs/kronecker-study.md); `kronecker_trials.py` measures them.

They are written for one model at a time with Linear layers: enough to find out whether they are worth more.
"""

import json
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from fopng.curvature.kronecker import KroneckerFisher, LayerBasis, Shrinkage, across
from fopng.curvature.moments import LayerMoments, Moments
from fopng.optim.fopng_k import KroneckerFOPNGMethod
from fopng.optim.method import TaskData


@dataclass(kw_only=True)
class Corrected(KroneckerFOPNGMethod):
    """Eigenvalues as in EKFAC: the mean squares of a task's gradients along the eigenvectors of the sum, taken at its end.

    When the eigenvectors turn from V to U, those of old tasks become the diagonal of their matrix along the new ones:
    `(U_g^T V_g)^2 D ((U_a^T V_a)^2)^T`, squares entry by entry. Its trace stays.
    """

    kept: dict[Any, LayerBasis] = field(default_factory=dict, init=False)

    def end_task(self, task: TaskData) -> None:
        self.remember(self.measure(task))
        new = {names: self.eigenvectors(names) for names in self.layers()}
        squares = task.turned_squares(new, self.signals, self.fisher_samples)
        for names, own in new.items():
            values, old = squares[names], self.kept.get(names)
            if old is not None:
                turned_a, turned_g = own.inputs.mT @ old.inputs, own.signals.mT @ old.signals
                values = values + turned_g.square() @ old.values @ turned_a.square().mT
            self.kept[names] = LayerBasis(own.inputs, own.signals, values, None, own.bias)
        self._bases.clear()
        self.forget_derived()

    def eigenvectors(self, names: Any) -> LayerBasis:
        A, G = (self.matrices[json.dumps([kind, *names])] for kind in ("inputs", "signals"))
        return LayerBasis.of(LayerMoments(A, G), bias=len(names) > 1)

    def trace(self) -> Tensor:
        return self.vectors["fisher_rest"].sum() + sum(own.values.sum() for own in self.kept.values())

    def _basis(self, names: Any) -> LayerBasis:
        own, size = self.kept[names], self.kept[names].values.shape[-1]
        k = min(self.rank or size, size)
        others = own.values[:, :-k].mean(-1, keepdim=True) if k < size else None
        return LayerBasis(own.inputs[:, -k:].contiguous(), own.signals, own.values[:, -k:], others, own.bias)


@dataclass(kw_only=True)
class KaoSum(KroneckerFOPNGMethod):
    """Tasks added up as NCL's authors do: the product nearest to the sum of two in the divergence of Gaussians.

    `log det(A kron G) + tr((A kron G)^-1 M)`, M the sum, is least where `A = e_1 A_1 + e_2 A_2` with `e_t = tr(G^-1 G_t) / o`
    and `G = g_1 G_1 + g_2 G_2` with `g_t = tr(A^-1 A_t) / i`. The weights are worked out in turns.
    """

    def remember(self, moments: Moments) -> None:
        before = dict(self.matrices)
        super().remember(moments)
        for names, own in moments.layers.items():
            keys = [json.dumps([kind, *names]) for kind in ("inputs", "signals")]
            if keys[0] in before:
                alphas, betas = (shares(before[key], new) for key, new in zip(keys, vars(own).values(), strict=True))
                g = torch.ones(2, dtype=torch.float64)
                for _ in range(100):
                    e = nearest_weights(betas, g)
                    g = nearest_weights(alphas, e)
                for key, new, weights in zip(keys, vars(own).values(), (e, g), strict=True):
                    self.matrices[key] = (weights[0] * before[key] + weights[1] * new).to(new)


def shares(old: Tensor, new: Tensor) -> Tensor:
    """How much of the sum of two moments is the old one's, along the directions that take both apart."""
    values, vectors = torch.linalg.eigh((old + new).double())
    reached = values > 1e-5 * values[-1]
    root = vectors[:, reached] / values[reached].sqrt()
    return torch.linalg.eigvalsh(root.mT @ old.double() @ root).clamp(0, 1)


def nearest_weights(share: Tensor, weights: Tensor) -> Tensor:
    """`tr(X^-1 X_t) / n` for `X = w_1 X_1 + w_2 X_2`, of both t."""
    total = weights[0] * share + weights[1] * (1 - share)
    return torch.stack([(share / total).mean(), ((1 - share) / total).mean()])


@dataclass(kw_only=True)
class Hard(KroneckerFOPNGMethod):
    """Directions with `s l > 1` are projected out, the others left as they are."""

    @property
    def remover(self) -> Shrinkage | None:
        if self._shrinkage is None and self.remembers:
            s = self.weight()
            self._shrinkage = Shrinkage(self.old_fisher().map(lambda own: (across(s, own) * own <= 1).to(own)))
        return self._shrinkage


@dataclass(kw_only=True)
class Pulled(KroneckerFOPNGMethod):
    """`v = eta ((I + s F_old / f)^-1 g + c (theta - theta*))`, NCL's pull in our unit."""

    pull: float
    needs_parameters = True

    def update(self, g: Tensor, *, lr: float | Tensor, theta: Tensor | None) -> Tensor:
        return lr * (self.held_back(g) + self.pull * (theta - self.vectors["anchor"]))

    def end_task(self, task: TaskData) -> None:
        super().end_task(task)
        self.vectors["anchor"] = task.parameters()


@dataclass(kw_only=True)
class Natural(KroneckerFOPNGMethod):
    """The new task's own Kronecker metric, measured once an epoch: a step of length eta along `F_new^-1` times what is left of g.

    With `first` the natural step comes first, and what is held back is that.
    """

    damping: float
    first: bool = False
    inverse: KroneckerFisher | None = field(default=None, init=False)

    def refresh(self, task: TaskData) -> None:
        moments = task.moments("sampled", self.fisher_samples)
        layers = {n: LayerBasis.of(m, bias=len(n) > 1, rank=self.rank) for n, m in moments.layers.items()}
        self.inverse = KroneckerFisher(self.layout, layers, moments.rest).map(lambda own: 1 / (own + self.damping))

    def update(self, g: Tensor, *, lr: float | Tensor, theta: Tensor | None) -> Tensor:
        u = g if self.first else self.held_back(g)
        v = self.inverse(u)
        v = lr * v / (u @ v).sqrt()
        return self.held_back(v) if self.first else v


@dataclass(kw_only=True)
class Scaled(KroneckerFOPNGMethod):
    """Adam's second moment on what is left of the gradient: `v = eta u / (sqrt(E[u^2]) + 1e-8)`; with `first`, on g itself."""

    first: bool = False
    steps: int = field(default=0, init=False)

    def update(self, g: Tensor, *, lr: float | Tensor, theta: Tensor | None) -> Tensor:
        u = g if self.first else self.held_back(g)
        self.steps += 1
        old = self.vectors.get("second_moment", torch.zeros_like(u))
        self.vectors["second_moment"] = torch.lerp(old, u.square(), 1e-3)
        v = lr * u / ((self.vectors["second_moment"] / (1 - 0.999**self.steps)).sqrt() + 1e-8)
        return self.held_back(v) if self.first else v
