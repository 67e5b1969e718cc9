"""A stream of somebody's own, as `own_stream:stream`: two tasks of the digits, with a head each."""

from fopng.lab.benchmarks import Scenario, SplitByClass


def stream(*, seed, validation):
    """Called by the laboratory."""
    return SplitByClass("digits", Scenario.TASK, classes_per_task=5).build(seed=seed, validation=validation)
