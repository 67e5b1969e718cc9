"""Many runs of one benchmark and one method side by side on one device: the batched twin of the training loop."""

from fopng.lab.engine.batched.engine import train_replicas
from fopng.lab.engine.batched.room import Footprint, free_memory
from fopng.lab.engine.batched.stacking import NotStackable

__all__ = ["Footprint", "NotStackable", "free_memory", "train_replicas"]
