"""FOPNG-PreFisher: the paper's variant that weights each task's gradients with that task's own Fisher."""

from collections.abc import Collection
from dataclasses import replace
from typing import Annotated, ClassVar, Literal, TypeAlias, final

import torch
from torch import Tensor

from fopng.gradients.directions import Basis, CombinedBasis
from fopng.memory.gradients import GradientMemory
from fopng.optim.method import About
from fopng.optim.projected_base import FormedProjected, StoredFisherState
from fopng.optim.settings import settings
from fopng.optim.task import Task

PreFisher: TypeAlias = Literal["diagonal", "empirical", "metric"]
"""What multiplies a task's gradients: its diagonal Fisher, the empirical Fisher of the gradients themselves, or its Fisher as the
metric approximates it."""


@final
@settings
class FOPNGPreFisher(FormedProjected[StoredFisherState]):
    """FOPNG-PreFisher: as FOPNG, with every task's gradients weighted by that task's own Fisher once and for all.

    Eq. 18 with the basis of eq. 24, `B = [F_1 G_1, F_2 G_2, ...]`.
    """

    about: ClassVar[About] = About(
        "fopng-prefisher", "FOPNG with gradients times Fisher stored", 2026, "FOPNG paper", "gradients"
    )

    prefisher: Annotated[
        PreFisher,
        'what multiplies a task\'s gradients: "diagonal" (its diagonal Fisher), "empirical" (the empirical Fisher of the stored '
        'gradients, `G_t G_t^T / k`, never formed) or "metric" (its Fisher as the metric approximates it).',
    ] = "diagonal"

    @property
    def variant(self) -> str:
        return f"{super().variant}, prefisher={self.prefisher!r}"

    def basis(self, state: StoredFisherState, names: Collection[str]) -> Basis:
        G = state.gradients.only(names)
        return G if self.prefisher != "empirical" or G.count == 0 else CombinedBasis(G, empirical_mix(state.gradients))

    def stored_combinations(self, state: StoredFisherState, mix: Tensor) -> Tensor:
        return empirical_mix(state.gradients) @ mix if self.prefisher == "empirical" else mix

    def stored(self, state: StoredFisherState, task: Task) -> StoredFisherState:
        if self.prefisher == "metric" and self.metric != "diagonal":
            fisher = self.estimate(task).kept()
            found = [fisher.times_gradients(own) for own in task.gradients(self.gradients_per_task, self.score)]
            capacity = self.max_directions if self.when_full == "thin" else None
            return replace(state, gradients=state.gradients.appended(*found, capacity=capacity))
        weighted = self.prefisher != "empirical"
        return self.appended(state, task, task.fisher(self.labels, self.fisher_samples) if weighted else None)


def empirical_mix(G: GradientMemory) -> Tensor:
    """`F_t G_t = G_t (G_t^T G_t) / k_t`: how each task's gradients are combined, block by block, `[..., m, m]`."""
    mix = G.gram(None)
    shares = torch.tensor(G.shares, device=mix.device)
    task = torch.repeat_interleave(torch.arange(len(shares), device=mix.device), shares)
    mix = torch.where(task[:, None] == task, mix, 0.0) / shares[task]
    if G.error is not None:
        # what is compressed has been multiplied by its tasks' Fishers before
        done = torch.eye(G.shares[0], dtype=mix.dtype, device=mix.device)
        mix[..., : len(done), : len(done)] = done
    return mix
