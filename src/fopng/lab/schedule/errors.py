"""How doing runs can fail, apart from what a run raises."""


class FailedRunsError(RuntimeError):
    """Some runs failed; the others have their results."""


class ClusterError(RuntimeError):
    """There is no cluster, or every run would fail in the same way."""
