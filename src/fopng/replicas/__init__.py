"""Many runs of one benchmark and one method side by side on one device: the batched twin of the training loop."""

from fopng.replicas.engine import train_replicas
from fopng.replicas.room import Footprint, free_memory
from fopng.replicas.stacking import NotStackable

__all__ = ["Footprint", "NotStackable", "free_memory", "train_replicas"]
