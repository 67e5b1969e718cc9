"""The words that people choose among, each set written once; importable without torch."""

from enum import StrEnum
from typing import Literal

ProtocolName = Literal["matched", "printed"]
"""What the first task is learnt with: the same SGD for every method, or as the paper's text says."""

PrecisionName = Literal["float32", "tf32", "bfloat16", "float64"]
"""How numbers are held and multiplied."""

EngineName = Literal["auto", "replicas", "single", "ray"]
"""How runs are done: as a group, one after another, on a cluster, or in the way that is faster."""

DeviceName = Literal["auto", "cpu", "cuda", "mps"]
"""Where runs are done."""


class Scenario(StrEnum):
    """What a model is told about the task, and what its targets mean."""

    TASK = "task"
    """Task-incremental: a head of its own for each task, and the task is given."""
    DOMAIN = "domain"
    """Domain-incremental: one head, the same targets in every task."""
    CLASS = "class"
    """Class-incremental: one head, and every task brings targets of its own."""
