"""The laboratory that compares the methods: data, benchmarks, training, storage, schedules, reports."""

from fopng.core.extras import from_extra

with from_extra("lab", "the laboratory"):
    import rich  # noqa: F401 (the quickest of what the extra brings: without it the others are not there either)
