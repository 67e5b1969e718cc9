"""The precision of a run's numbers: what is stored, and how products are computed."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import final, get_args

import torch

from fopng.lab.choices import PrecisionName

PRECISIONS = get_args(PrecisionName)


@final
@dataclass(frozen=True)
class Precision:
    """One of `PRECISIONS`.

    Args:
        name: float32, as it is written; tf32, float32 with products of 10 bits where a GPU has them; bfloat16, the model's
            forward and backward pass of each step in 8 bits, weights and all else in float32; float64, everything.
    """

    name: str = "float32"

    def __post_init__(self) -> None:
        if self.name not in PRECISIONS:
            raise ValueError(f"Expected a precision out of {', '.join(PRECISIONS)}, got {self.name!r}.")

    @property
    def dtype(self) -> torch.dtype:
        """The type of weights and inputs."""
        return torch.float64 if self.name == "float64" else torch.float32

    def passes(self, device: torch.device) -> AbstractContextManager[object]:
        """Compute a model's forward pass inside as in a step."""
        if self.name != "bfloat16":
            return nullcontext()
        # No cache of rounded weights: a captured step must round those that it finds.
        return torch.autocast(device.type, torch.bfloat16, cache_enabled=False)

    @contextmanager
    def arithmetic(self) -> Iterator[None]:
        """Multiply inside as this precision says, on a GPU with the same algorithms every time."""
        tf32 = self.name == "tf32"
        before = torch.backends.cuda.matmul.allow_tf32
        torch.backends.cuda.matmul.allow_tf32 = tf32
        try:
            with torch.backends.cudnn.flags(enabled=True, benchmark=False, deterministic=True, allow_tf32=tf32):
                yield
        finally:
            torch.backends.cuda.matmul.allow_tf32 = before
