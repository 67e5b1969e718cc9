"""What a method may ask about the task at hand."""

from typing import Protocol

from torch import Tensor

from fopng.likelihood import Labels, Score, Signals
from fopng.moments import Moments
from fopng.persample import SampleGradients
from fopng.pulling import Names
from fopng.sampling import TaskSamples


class TaskData(Protocol):
    """The task at hand, as a method may ask about it."""

    def parameters(self) -> Tensor:
        """The parameters now, `[..., p]`."""
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
