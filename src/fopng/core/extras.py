"""Libraries that an extra of this package brings: without one, the error says which extra to install."""

from collections.abc import Iterator
from contextlib import contextmanager


class LibraryMissing(ModuleNotFoundError):
    """A library that an extra brings is not installed."""


@contextmanager
def from_extra(extra: str, purpose: str = "") -> Iterator[None]:
    """Import libraries of an extra inside; one that is not installed raises `LibraryMissing`, which names the extra.

    >>> with from_extra("lab", "the command"):
    ...     import not_there
    Traceback (most recent call last):
    fopng.core.extras.LibraryMissing: Expected the package not_there for the command, got none. \
Install it with: pip install 'fopng[lab]'

    Args:
        extra: the extra that brings what is imported.
        purpose: what needs it, in words of the user.
    """
    try:
        yield
    except LibraryMissing:
        raise
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package in ("", "fopng"):  # our own mistake, which no extra mends
            raise
        wanted = f"the package {package} for {purpose}" if purpose else f"the package {package}"
        message = f"Expected {wanted}, got none. Install it with: pip install 'fopng[{extra}]'"
        raise LibraryMissing(message, name=error.name) from error
