"""Fisher orthogonality made soft, with a Kronecker-factored Fisher: no stored gradients, no Gram matrix."""

from dataclasses import dataclass, replace
from typing import Annotated, ClassVar, final

import torch
from torch import Tensor

from fopng.core.tree import node
from fopng.core.vector import broadcast
from fopng.curvature.moments import Moments
from fopng.optim.kronecker_base import KroneckerMemory, KroneckerState
from fopng.optim.method import About, State
from fopng.optim.settings import AT_LEAST_0, SHARE, SHARE_BELOW_1, settings
from fopng.optim.task import Task
from fopng.optim.weight_averaging import MERGING


@final
@node
@dataclass(frozen=True)
class FOPNGKState(KroneckerState):
    """The old tasks' moments, each in its own unit.

    Args:
        units: the sum over old tasks of the mean of their Fishers' diagonals, `[*lead]`.
        steps: of all old tasks that took any.
        stepped: how many tasks that are.
    """

    units: Tensor | None = None
    steps: int = 0
    stepped: int = 0


@final
@settings
class KroneckerFOPNG(KroneckerMemory[FOPNGKState]):
    """FOPNG made soft, with a Kronecker-factored `F_old`: the gradient, held back where old answers depend on the parameters.

    Each step solves `min |v - g|^2 + s |v|^2_F` with F the old tasks' Fisher and s the strength (docs/explanation/fopng-k.md):
    `v = eta (I + s min(1, N / N_f) T^(q-1) F_old)^-1 g` with `F_old = sum_t F_t / (f_t^b f^(1-b))` over the T old tasks, `f_t` the
    mean of the diagonal of a task's Fisher and f the mean of those. Kept of old tasks are two small square matrices for each layer,
    however many tasks there are. Its closest relative is natural continual learning (Kao, 2021).
    """

    about: ClassVar[About] = About(
        "fopng-k", "FOPNG, soft, Kronecker-factored", 2026, "this project", "moments of layers"
    )
    state_type: ClassVar[type[State]] = FOPNGKState
    default_lr: ClassVar[float | None] = 0.1
    lr_means: ClassVar[str] = "eta, the learning rate, SGD's."

    strength: Annotated[
        float,
        AT_LEAST_0,
        "s, how much a change of old answers weighs against the gradient; 0 takes SGD's steps. Less of it where tasks are short: "
        "`full_steps`.",
    ] = 30.0
    evenness: Annotated[
        float,
        SHARE,
        "how much all outputs of a layer count alike, from 0 (as much as the model's outputs depend on them now) to 1.",
    ] = 0.5
    growth: Annotated[
        float,
        SHARE,
        "q, the strength grows with the number T of old tasks as T^q: 1 takes the sum of their Fishers, 0 (for long streams) the "
        "mean.",
    ] = 1.0
    balance: Annotated[
        float,
        SHARE,
        "1 where every task is learnt well: all old tasks count alike, also one whose Fisher is small since the model is sure "
        "of it. 0 where early tasks end well below what later ones reach: each counts as much as its Fisher is large.",
    ] = 1.0
    full_steps: Annotated[
        float,
        AT_LEAST_0,
        "from how many steps a task on the strength is full. Where old tasks took fewer (their mean), it is less in proportion: "
        "few steps do not get far where they are held back. 0 for the full strength always.",
    ] = 4000.0
    merging: Annotated[float, SHARE_BELOW_1, MERGING] = 0.3

    @property
    def variant(self) -> str:
        # the units are in the sums that are kept
        return f"{super().variant}, balance={float(self.balance):g}"

    def evened(self, signals: Tensor) -> Tensor:
        """`(1 - e) G + e (tr G / o) I`: an output that sends nothing back now may do so once it is moved."""
        each = signals.diagonal(dim1=-2, dim2=-1)
        even = torch.diag_embed(each.mean(-1, keepdim=True).expand_as(each))
        return torch.lerp(signals, even, broadcast(self.evenness, signals))

    def keep(self, state: FOPNGKState, task: Task) -> FOPNGKState:
        state = super().keep(state, task)
        # of a task that was learnt elsewhere nothing is known
        steps = task.steps
        return replace(state, steps=state.steps + steps, stepped=state.stepped + 1) if steps else state

    def remembered(self, state: FOPNGKState, moments: Moments) -> FOPNGKState:
        unit = moments.mean_diagonal()
        units = unit if state.units is None else state.units + unit
        return replace(super().remembered(state, moments.over(_unit(unit) ** self.balance)), units=units)

    def weight(self, state: FOPNGKState) -> float | Tensor:
        assert state.units is not None
        common = _unit(state.units / state.tasks)
        scale = self.full_share(state) * float(state.tasks) ** (self.growth - 1)
        return torch.as_tensor(self.strength * scale / common ** (1 - self.balance))

    def full_share(self, state: FOPNGKState) -> float | Tensor:
        """`min(1, N / N_f)`: in N steps a task moves N times as far along what is held back, so that few steps need less of it."""
        if not state.stepped:
            return 1.0
        # as tensors, for 0 full steps, and for replicas
        steps, full = (torch.as_tensor(n, dtype=torch.float64) for n in (state.steps / state.stepped, self.full_steps))
        return (steps / full).clamp(max=1)


def _unit(mean: Tensor) -> Tensor:
    """What to divide by; where nothing came back from the outputs there is nothing to hold on to."""
    return torch.where(mean > 0, mean, 1.0)
