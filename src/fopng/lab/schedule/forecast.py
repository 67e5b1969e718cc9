"""About how long runs will take here: from finished runs that are like them, or from a short measurement."""

import dataclasses
import math
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import final

import torch

from fopng.lab.benchmarks import Task, TaskStream
from fopng.lab.data.splits import ArraySplit, Split
from fopng.lab.engine import Plan, train
from fopng.lab.engine.batched import NotStackable, train_replicas
from fopng.lab.runs.config import RunConfig
from fopng.lab.runs.environment import describe_environment
from fopng.lab.runs.request import build
from fopng.lab.runs.result import RunResult
from fopng.lab.schedule.groups import LARGEST_GROUP, cut
from fopng.lab.schedule.machine import threads_used
from fopng.lab.schedule.runner import Runner

FEW, MANY = 100, 300
"""Samples of each task in the two runs of a measurement. What the longer one takes more is the work, the rest the start."""

TESTED = 20
"""Samples of each task that a measurement tests on."""

BUDGET = 60.0
"""Seconds for all measurements. Afterwards rates follow from those that were measured."""

Kind = tuple[str, str, int]
"""A model, a method and the size of a group: the cost of a step depends on them."""


@final
@dataclass
class Forecast:
    """Estimates how long runs take, and remembers what it measured.

    Args:
        runner: would do the runs.
        known: finished runs.
        budget: seconds for all measurements.
    """

    runner: Runner
    known: Iterable[RunResult] = ()
    budget: float = BUDGET
    _done: dict[str, list[float]] = field(default_factory=dict, init=False)
    _rates: dict[Kind, float] = field(default_factory=dict, init=False)
    _samples: dict[str, int] = field(default_factory=dict, init=False)
    _spent: float = field(default=0.0, init=False)

    def __post_init__(self) -> None:
        here = describe_environment(self.runner.device)["device_name"]
        for result in self.known:
            if result.status == "finished" and result.environment.get("device_name") == here:
                self._done.setdefault(_like(result.config), []).append(result.seconds)

    def seconds(self, configs: Sequence[RunConfig]) -> float:
        """The time that these runs take."""
        device = self.runner.device.type
        largest = LARGEST_GROUP.get(device, 1)
        groups = [part for group in self.runner.groups(configs) for part in cut(group, largest)]
        # What groups gain that share a GPU is not known beforehand.
        return math.fsum(map(self._group, groups)) / (1 if device == "cuda" else self.runner.jobs)

    def _group(self, group: Sequence[RunConfig]) -> float:
        config, kind = group[0], (group[0].model, group[0].method, len(group))
        if done := self._done.get(_like(config)):
            return math.fsum(done) / len(done) * len(group)
        if kind not in self._rates:
            follows = rate_from(kind, self._rates) if self._spent > self.budget else None
            self._rates[kind] = self._measure(group) if follows is None else follows
        return self._rates[kind] * self._trained_on(config)

    def _trained_on(self, config: RunConfig) -> int:
        """The samples of a run, each counted once an epoch; the same for every method."""
        stream = _like(dataclasses.replace(config, method=""))
        if stream not in self._samples:
            self._samples[stream] = config.epochs * _samples(build(config, self.runner.data_dir).stream)
        return self._samples[stream]

    def _measure(self, group: Sequence[RunConfig]) -> float:
        started = time.perf_counter()
        self.runner.notice(f"Measuring {group[0].method} on {group[0].benchmark}.")
        plans = [build(config, self.runner.data_dir) for config in group]
        with threads_used(self.runner.threads, group[0].model):
            rate = measure(plans, self.runner.device)
        self._spent += time.perf_counter() - started
        return rate


def rate_from(kind: Kind, rates: Mapping[Kind, float]) -> float | None:
    """A rate that was not measured: what a method costs more than another on one model, it costs on another model too.

    Where nothing tells that, the highest rate on the model; None where there is none.
    """
    model, method, size = kind
    here = {(other, runs): rate for (where, other, runs), rate in rates.items() if where == model}
    for (other, runs), rate in here.items():
        for elsewhere, _, among in [known for known in rates if known[1] == method]:
            if beside := rates.get((elsewhere, other, among)):
                return rate * size / runs * rates[elsewhere, method, among] / beside
    return max(here.values(), default=None)


def measure(plans: Sequence[Plan], device: torch.device) -> float:
    """Seconds that these runs, as a group or one alone, take for each sample of their training."""
    few, many = ([_cut(plan, count) for plan in plans] for count in (FEW, MANY))
    if device.type != "cpu":
        _timed(few, device)  # the first run on a device loads much that is not loaded again
    short, long = _timed(few, device), _timed(many, device)
    more = _samples(many[0].stream) - _samples(few[0].stream)
    return (long - short) / more if more and long > short else long / _samples(many[0].stream)


def _timed(plans: Sequence[Plan], device: torch.device) -> float:
    started = time.perf_counter()
    try:
        if len(plans) == 1:
            raise NotStackable("one run stands alone")
        train_replicas(plans, device=device)
        return time.perf_counter() - started
    except NotStackable:
        started = time.perf_counter()
        train(plans[0], device=device)
        return (time.perf_counter() - started) * len(plans)


def _cut(plan: Plan, samples: int) -> Plan:
    """The same run with one epoch of a few samples of each task."""
    tasks = tuple(_few(task, samples) for task in plan.stream)
    return dataclasses.replace(plan, stream=dataclasses.replace(plan.stream, tasks=tasks), epochs=1)


def _few(task: Task, samples: int) -> Task:
    held_out = None if task.validation is None else _first(task.validation, TESTED)
    train, test = _first(task.train, samples), _first(task.test, TESTED)
    return dataclasses.replace(task, train=train, test=test, validation=held_out)


def _first(split: Split, samples: int) -> Split:
    # What is no array cannot be cut; it is measured whole.
    return split.first(samples) if isinstance(split, ArraySplit) else split


def _samples(stream: TaskStream) -> int:
    return sum(len(task.train) for task in stream)


def _like(config: RunConfig) -> str:
    """What the time of a run depends on, beside the machine."""
    same = dataclasses.replace(config, seed=0, settings={}, protocol="", first_task_lr=None, validation=False)
    return same.canonical()
