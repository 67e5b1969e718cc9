"""Many runs of one benchmark and one method side by side on one device."""

from fopng.lab.engine.batched.backend import train_replicas
from fopng.lab.engine.batched.footprint import Footprint, free_memory
from fopng.lab.engine.batched.model import NotStackable

__all__ = ["Footprint", "NotStackable", "free_memory", "train_replicas"]
