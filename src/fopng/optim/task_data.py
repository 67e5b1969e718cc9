"""What a method may ask about the task at hand, and how a model and its batches answer."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, final

import torch
from torch import Tensor, nn

from fopng.core.batch import Batch
from fopng.core.likelihood import Labels, Score, Signals, draws_labels
from fopng.curvature.estimate import chunks, diagonal_fisher, full_fisher, stored_gradients
from fopng.curvature.kronecker import LayerBasis, SquareSums
from fopng.curvature.low_rank import low_rank_fisher
from fopng.curvature.moments import Moments, input_moments, layer_moments
from fopng.gradients.backward import Names
from fopng.gradients.per_sample import GradientSource, SampleGradients
from fopng.memory.replay_draws import BatchSamples, TaskSamples
from fopng.optim.flat import flat_values, put_values
from fopng.parallel.collectives import ALONE, Peers
from fopng.parallel.sharded_sampling import Deal


class TaskData(Protocol):
    """The task at hand, as a method may ask about it."""

    @property
    def steps(self) -> int:
        """How many steps it has taken when it ends, whoever took them; 0 for a task that was learnt elsewhere.

        Where processes share the run, the most that any has taken: all of them ask.
        """
        ...

    def parameters(self) -> Tensor:
        """The parameters now, `[..., p]`."""
        ...

    def move(self, theta: Tensor) -> None:
        """Put the parameters there, `[..., p]`: where the task ends."""
        ...

    def fisher(self, labels: Labels, samples: int | None) -> Tensor:
        """Its diagonal Fisher now, `[..., p]`."""
        ...

    def gradients(self, count: int, score: Score) -> list[SampleGradients]:
        """Gradients of a score of `count` of its samples, now."""
        ...

    def input_moments(self, samples: int | None) -> dict[Names, Tensor]:
        """`A [..., i, i]` of what each Linear and Conv layer is given, now; a layer that it does not reach is absent."""
        ...

    def moments(self, signals: Signals, samples: int | None) -> Moments:
        """Both second moments of each Linear and Conv layer now, and a diagonal for everything else."""
        ...

    @property
    def sampling(self) -> TaskSamples:
        """Its samples, for methods that keep some or learn from answers alone."""
        ...

    def turned_squares(
        self, bases: Mapping[Names, LayerBasis], labels: Labels, samples: int | None
    ) -> dict[Names, Tensor]:
        """Mean squared gradients along the eigenvectors of each layer now, `[..., o, i]`."""
        ...

    def full_fisher(self, labels: Labels, samples: int | None) -> Tensor:
        """Its whole Fisher now, `[..., p, p]`; for small models."""
        ...

    def low_rank_fisher(self, labels: Labels, samples: int | None, rank: int) -> tuple[Tensor, Tensor]:
        """Its Fisher now as a diagonal `[..., p]` and the leading rows `[..., rank, p]`."""
        ...


@final
@dataclass(frozen=True)
class LoaderTask(TaskData):
    """The task at hand of a drop-in optimizer: its model and its batches, and the processes that share them."""

    source: GradientSource
    batches: Iterable[Batch]
    generator: torch.Generator
    held: Sequence[nn.Parameter]
    taken: int
    peers: Peers = ALONE
    turn: int = 0

    @property
    def steps(self) -> int:
        found: list[int] = self.peers.gather(self.taken)
        return max(found)

    def parameters(self) -> Tensor:
        return flat_values(self.held)

    def move(self, theta: Tensor) -> None:
        put_values(self.held, theta)

    def fisher(self, labels: Labels, samples: int | None) -> Tensor:
        return diagonal_fisher(
            self.source, self.batches, labels=labels, samples=samples, generator=self.generator, peers=self.peers
        )

    def gradients(self, count: int, score: Score) -> list[SampleGradients]:
        return stored_gradients(
            self.source, self.batches, count, score=score, generator=self.generator, peers=self.peers, turn=self.turn
        )

    def input_moments(self, samples: int | None) -> dict[Names, Tensor]:
        return input_moments(self.source, self.batches, samples=samples, generator=self.generator, peers=self.peers)

    def moments(self, signals: Signals, samples: int | None) -> Moments:
        return layer_moments(
            self.source, self.batches, signals=signals, samples=samples, generator=self.generator, peers=self.peers
        )

    def turned_squares(
        self, bases: Mapping[Names, LayerBasis], labels: Labels, samples: int | None
    ) -> dict[Names, Tensor]:
        deal = Deal(self.generator, self.peers, labels=draws_labels(labels))
        sums = SquareSums(self.source, labels, bases, generator=deal, peers=self.peers)
        for chunk in chunks(self.source, self.batches, samples, deal, None):
            sums.add(chunk)
        return sums.mean()

    def full_fisher(self, labels: Labels, samples: int | None) -> Tensor:
        return full_fisher(
            self.source, self.batches, labels=labels, samples=samples, generator=self.generator, peers=self.peers
        )

    def low_rank_fisher(self, labels: Labels, samples: int | None, rank: int) -> tuple[Tensor, Tensor]:
        return low_rank_fisher(
            self.source, self.batches, rank, labels=labels, samples=samples, generator=self.generator, peers=self.peers
        )

    @property
    def sampling(self) -> BatchSamples:
        return BatchSamples(self.source, self.batches, self.generator, self.peers)
