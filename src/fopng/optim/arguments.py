"""What a drop-in optimizer is given, checked before anything is trained with it."""

import warnings
from collections.abc import Collection, Iterable, Mapping
from numbers import Integral

import torch
from torch import nn

from fopng.core.batch import Batch, sample_count, take
from fopng.core.likelihood import Likelihood
from fopng.gradients.per_sample import PerSampleGradients
from fopng.gradients.tracing import undisturbed
from fopng.memory.probe import check_kind
from fopng.optim.settings import AT_LEAST_0
from fopng.parallel.collectives import Communicator


def check_arguments(lr: object, predict: object, likelihood: object, probe: object, generator: object) -> None:
    """Raise for an argument that would only be found wrong at the end of the first task."""
    AT_LEAST_0.check("lr", lr)
    if predict is not None and not callable(predict):
        raise TypeError(f"Expected predict to be a function of a model and a batch, got {predict!r}.")
    if likelihood is not None and not isinstance(likelihood, Likelihood):
        called = f" Call it: {likelihood.__name__}()." if isinstance(likelihood, type) else ""
        raise TypeError(f"Expected likelihood to be one such as fopng.Gaussian(), got {likelihood!r}.{called}")
    check_kind(probe)
    if generator is not None and not isinstance(generator, torch.Generator):
        raise TypeError(f"Expected generator to be a torch.Generator, got {generator!r}.")


def plain_task(task: object) -> int | str | None:
    """The name or number of a task as Python's own, whatever array it comes from: a state that is saved holds it."""
    if task is None:
        return None
    if isinstance(task, Integral):
        return int(task)
    if isinstance(task, str):
        return str.__str__(task)
    raise TypeError(f"Expected a task's name or number, got {task!r}.")


def check_samples(batches: Iterable[Batch], communicator: Communicator) -> None:
    """Raise where the data of a task is empty, in any of the processes."""
    found = communicator.gather(any(sample_count(batch) for batch in batches))
    if not all(found):
        where = "none" if len(found) == 1 else f"none in process {found.index(False)} of {len(found)}"
        raise ValueError(f"Expected samples of the task that ends, got {where}. Pass its training data.")


def check_answers(source: PerSampleGradients, batches: Iterable[Batch]) -> None:
    """Raise where `predict` does not answer the data, or the likelihood is not one of these outputs and targets."""
    batch = next((batch for batch in batches if sample_count(batch)), None)
    if batch is None:
        return
    with undisturbed(source.model):
        answer = source.predict(source.model, take(batch, torch.arange(1)))
    if not (isinstance(answer, tuple) and len(answer) == 2 and isinstance(answer[0], torch.Tensor)):
        raise TypeError(
            f"Expected predict to return (outputs, targets), a tensor first, got {_kind(answer)}. See docs/guides/own-loop.md."
        )
    outputs, targets = source.answers(take(batch, torch.arange(min(FEW, sample_count(batch)))))
    if targets is not None:
        source.likelihood.check(outputs, targets)


def _kind(answer: object) -> str:
    inside = f" of {', '.join(type(each).__name__ for each in answer)}" if isinstance(answer, tuple | list) else ""
    return f"a {type(answer).__name__}{inside}"


FEW = 4
"""Samples that are looked at before anything is trained."""


def warn_if_late(new: Mapping[str, nn.Parameter], held: Collection[int]) -> None:
    """Warn about parameters that came in the middle of a task and have had gradients since: no step has moved them.

    Args:
        new: parameters that have not been trained yet.
        held: the `id` of those that another optimizer trains.
    """
    late = [name for name, parameter in new.items() if parameter.grad is not None and id(parameter) not in held]
    if late:
        warnings.warn(
            f"{late} came, or were unfrozen, in the middle of a task: no step has moved them until now. Do that before begin_task.",
            stacklevel=4,
        )
