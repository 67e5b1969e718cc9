"""Independent streams of random numbers from the seed of a run. They do not depend on the method."""

from dataclasses import dataclass
from typing import final

import numpy as np

_WEIGHTS, _ORDER, _FISHER, _DROPOUT, _SAMPLES = range(1, 6)


@final
@dataclass(frozen=True)
class Seeds:
    """One seed for each purpose: changing what one purpose draws leaves the others as they are.

    >>> Seeds(0).weights == Seeds(0).weights, Seeds(0).weights == Seeds(1).weights
    (True, False)
    """

    run: int
    """The run's seed. Benchmarks draw permutations and orders of classes from it (`fopng.lab.benchmarks`)."""

    @property
    def weights(self) -> int:
        """The initial weights."""
        return self._derive(_WEIGHTS)

    @property
    def fisher(self) -> int:
        """Which samples a Fisher is estimated on and which gradients are stored."""
        return self._derive(_FISHER)

    @property
    def dropout(self) -> int:
        """What the model draws in training."""
        return self._derive(_DROPOUT)

    def order(self, stage: int, epoch: int, task: int) -> int:
        """The order of a task's samples in an epoch."""
        return self._derive(_ORDER, stage, epoch, task)

    def interleaving(self, stage: int, epoch: int) -> int:
        """The order of the tasks' batches where several are learnt together."""
        return self._derive(_ORDER, stage, epoch)

    def samples(self, *place: int) -> int:
        """What a dataset with random samples draws for a task, an epoch and rows."""
        return self._derive(_SAMPLES, *place)

    def _derive(self, *purpose: int) -> int:
        # A benchmark's keys have one number, these two or more: no two streams meet.
        sequence = np.random.SeedSequence(self.run, spawn_key=(*purpose, len(purpose)))
        return int(sequence.generate_state(1, np.uint64)[0] >> 1)
