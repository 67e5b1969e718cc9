"""What a file format offers: the files it needs and how they become arrays."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping

from fopng.lab.data.contents import Arrays, Contents


class Format(ABC):
    """One way to write a dataset down."""

    @abstractmethod
    def limits(self, contents: Contents) -> dict[str, int]:
        """The files it needs, each with the most bytes it may have."""

    @abstractmethod
    def decode(self, files: Mapping[str, bytes], contents: Contents, origin: str) -> Arrays:
        """The four arrays; BadFileError, naming the file at `origin`, when the bytes are not of this format."""
