"""Results of runs that were never run: any accuracy, any settings, for tests of what is made of them."""

import dataclasses

from fopng.lab.runs.result import RunResult
from sample_runs import result

SETTINGS = {
    "sgd": {"lr": 5e-4},
    "ewc": {"lr": 5e-4, "strength": 400.0, "fisher_samples": None},
    "ogd": {"lr": 5e-4, "gradients_per_task": 80, "max_directions": 400},
    "fopng": {
        **{"lr": 1e-5, "damping": 5e-4, "fisher_weight": 0.5},
        **{"gradients_per_task": 80, "max_directions": 400, "fisher_samples": None},
    },
}
"""The paper's, on Split-MNIST."""


def on_test(accuracy, *, method="fopng", seed=0, settings=None, **changes):
    """A run of two tasks that ends at this accuracy; None for one that diverged."""
    matrix = [[0.9, None]] if accuracy is None else [[0.9, None], [accuracy, accuracy]]
    made = result(
        matrix, method=method, seed=seed, settings={**SETTINGS.get(method, {}), **(settings or {})}, **changes
    )
    return made if accuracy is not None else _diverged(made)


def held_out(accuracy, *, first=0.95, method="fopng", seed=0, settings=None, **changes):
    """A run of a sweep: this accuracy on validation at the end, `first` on the first task."""
    made = on_test(accuracy, method=method, seed=seed, settings=settings, validation=True, **changes)
    rows = [[first, None]] if accuracy is None else [[first, None], [accuracy, accuracy]]
    return dataclasses.replace(made, validation_accuracy=rows)


def _diverged(made):
    return dataclasses.replace(made, status="diverged")


def measured(config, accuracy):
    """The result of a configuration: this accuracy at the end of two tasks, 0.95 on the first when it was learnt."""
    rows = [[0.95, None], [accuracy, accuracy]]
    return RunResult(config=config, accuracy=rows, validation_accuracy=rows if config.validation else None)


def two_settings(method="ewc", rates=(1e-3, 1e-2, 1e-1), strengths=(10, 400)):
    """A sweep over every pair but one; with the largest rate the first task was not learnt."""
    return [
        held_out(
            0.5 + rate + strength / 2000,
            first=0.5 if rate == max(rates) else 0.95,
            method=method,
            settings={"lr": rate, "strength": strength},
        )
        for rate in rates
        for strength in strengths
        if (rate, strength) != (min(rates), max(strengths))
    ]
