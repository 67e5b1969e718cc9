"""A stream that gives its batches as they are: for replicas, and for estimates that must come in given pieces."""

from collections.abc import Iterable, Iterator
from typing import TypeVar

from fopng.core.batch import Batch
from fopng.core.likelihood import Generators
from fopng.core.vector import Vector
from fopng.curvature.sampling import SampleStream
from fopng.gradients.per_sample import PerSampleGradients

T = TypeVar("T")


class BatchStream(SampleStream):
    """All batches, one after another, whatever their sizes.

    Args:
        batches: `[*lead, n, ...]` each.
        parameters: those of replicas; None for the model's own.
        generator: draws labels and noise; one for all, or one for each replica.
    """

    def __init__(
        self, batches: Iterable[Batch], parameters: Vector | None = None, generator: Generators = None
    ) -> None:
        self.batches, self.parameters, self._generator = batches, parameters, generator

    @property
    def generator(self) -> Generators:
        return self._generator

    def chunks(
        self, source: PerSampleGradients, samples: int | None, *, labels: bool, size: int | None = None
    ) -> Iterator[Batch]:
        assert samples is None
        yield from self.batches

    def chosen(self, source: PerSampleGradients, count: int) -> Iterator[Batch]:
        yield from self.batches

    def checked(self, tree: T, what: str) -> T:
        return tree
