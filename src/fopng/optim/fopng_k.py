"""Fisher orthogonality made soft, with a Kronecker-factored Fisher: no stored gradients, no Gram matrix."""

from typing import Annotated, ClassVar, final

import torch
from torch import Tensor

from fopng.curvature.factors import Factor, evened
from fopng.curvature.moments import Moments
from fopng.optim.kronecker_base import KroneckerMemory, KroneckerState
from fopng.optim.method import About
from fopng.optim.settings import ABOVE_0_OR_NONE, AT_LEAST_0, settings

EVENNESS = 0.5
"""How much all outputs of a layer count alike, from 0 (as much as the model's outputs depend on them now) to 1."""


@final
@settings
class KroneckerFOPNG(KroneckerMemory[KroneckerState]):
    """FOPNG made soft, with a Kronecker-factored `F_old`: the gradient, held back where old answers depend on the parameters.

    Each step solves `min |v - g|^2 + s |v|^2_F` with F the old tasks' Fisher: `v = eta (I + s F_old)^-1 g`, with
    `F_old = mean_t F_t / f_t` over the old tasks, `f_t` the mean of the diagonal of a task's Fisher
    (docs/explanation/fopng-k.md). The strength s, and the weight of rehearsing inputs that stand for old ones, follow from
    the `tolerance`. Kept of old tasks are two small square matrices for each layer, however many tasks there are, and a
    probe for each task. Its closest relative is natural continual learning (Kao, 2021).
    """

    about: ClassVar[About] = About(
        "fopng-k", "FOPNG, soft, Kronecker-factored", 2026, "this project", "moments of layers and of inputs"
    )
    default_lr: ClassVar[float | None] = 0.1
    lr_means: ClassVar[str] = "eta, the learning rate, SGD's."

    tolerance: Annotated[
        float | None,
        ABOVE_0_OR_NONE,
        "how much old tasks may lose, the mean: how far the answers now are from those at a task's end, in nats. None leaves "
        "strength and rehearsal as they are set.",
    ] = 0.1
    strength: Annotated[
        float,
        AT_LEAST_0,
        "s, how much a change of old answers weighs against the gradient; where the steering begins.",
    ] = 10.0
    rehearse: Annotated[
        float,
        AT_LEAST_0,
        "the weight of answering inputs that stand for old ones as when their task ended; where the steering begins; 0 for none.",
    ] = 3.0

    @property
    def variant(self) -> str:
        # the units are in the sums that are kept
        return f"{super().variant}, units of the diagonal"

    def evened(self, signals: Factor) -> Factor:
        """`(1 - e) G + e (tr G / o) I`: an output that sends nothing back now may do so once it is moved."""
        return evened(signals, EVENNESS)

    def weight(self, state: KroneckerState) -> float | Tensor:
        # of the mean over old tasks
        return self.strength / max(1, state.tasks)

    def remembered(self, state: KroneckerState, moments: Moments) -> KroneckerState:
        unit = moments.mean_diagonal()
        # where nothing came back from the outputs there is nothing to hold on to
        return super().remembered(state, moments.over(torch.where(unit > 0, unit, 1.0)))
