"""What can go wrong between a dataset's name and its arrays."""

from __future__ import annotations


class DataError(Exception):
    """A dataset is missing, damaged, or could not be fetched; the message says what to do."""


class BadFileError(DataError):
    """A file is not what its name promises: truncated, oversized, of another kind, or of other contents."""

    def __init__(self, file: str, problem: str) -> None:
        super().__init__(file, problem)
        self.file, self.problem = file, problem

    def __str__(self) -> str:
        return f"{self.file}: {self.problem}"


class DatasetMissingError(DataError):
    """No place that was looked in holds the dataset."""


class FetchError(DataError):
    """Every source of a dataset failed; the message lists each with its reason."""
