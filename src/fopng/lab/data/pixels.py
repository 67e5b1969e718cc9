"""What happens to raw pixels on their way into a batch: moved about, then scaled to float32."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np
import torch
from numpy.typing import NDArray


@final
class PixelMap:
    """Each pixel of the new image is one of the old image, or black: a permutation and a rotation are both that.

    Args:
        source: which old pixel each new one takes, [height * width]; -1 for one from outside the image.
    """

    def __init__(self, source: NDArray[np.int64]) -> None:
        self.source = source
        self._taken = source.clip(min=0)
        self._inside = None if source.min() >= 0 else source >= 0

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PixelMap) and np.array_equal(self.source, other.source)

    def __hash__(self) -> int:
        return hash(self.source.tobytes())

    def __call__(self, images: NDArray[Any]) -> NDArray[Any]:
        """New images from old, [n, channels, height, width], every channel moved alike; or new inputs [n, ...] of another shape."""
        flat = images.reshape(*images.shape[: _fixed(images)], -1)
        moved: NDArray[Any] = flat.take(self._taken, axis=-1)
        if self._inside is not None:
            moved *= self._inside
        return moved.reshape(images.shape)

    def on_device(self, images: torch.Tensor) -> torch.Tensor:
        """The same where the images are."""
        moved = images.flatten(_fixed(images)).index_select(-1, torch.from_numpy(self._taken).to(images.device))
        if self._inside is not None:
            moved *= torch.from_numpy(self._inside).to(images.device)
        return moved.view(images.shape)


def _fixed(images: NDArray[Any] | torch.Tensor) -> int:
    """How many axes at the front stay where they are: samples, and an image's channels."""
    return 2 if images.ndim == 4 else 1


@final
@dataclass(frozen=True)
class Scaling:
    """Float pixels `(x / top - mean) / deviation`, a number for each channel.

    It is computed as `x * a - b`: two roundings that every device does alike, which a division is not.
    """

    top: float
    mean: tuple[float, ...] = (0.0,)
    deviation: tuple[float, ...] = (1.0,)

    def __call__(self, pixels: torch.Tensor) -> torch.Tensor:
        """float32 [n, channels, height, width] from raw pixels of the same shape."""
        scaled = pixels.to(torch.float32, copy=True)
        if len(self.mean) == 1 and self.mean[0] == 0:
            return scaled.mul_(1 / (self.top * self.deviation[0]))
        scaled *= _per_channel([1 / (self.top * deviation) for deviation in self.deviation], pixels.device)
        scaled -= _per_channel([m / d for m, d in zip(self.mean, self.deviation, strict=True)], pixels.device)
        return scaled


def _per_channel(values: Sequence[float], device: torch.device) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float32, device=device)[:, None, None]
