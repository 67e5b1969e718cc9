"""How long runs will take here: from those that were done on the same kind of device, or from a short measurement."""

import dataclasses
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
from fopng.lab.runs.scores import Estimate
from fopng.lab.schedule.groups import LARGEST_GROUP, cut
from fopng.lab.schedule.runner import Runner

SAMPLES = {"mlp": (100, 300), "convnet": (100, 200)}
"""Of each task, in the two runs of a measurement: what both need is the start, what the longer needs more is the work."""

TESTED = 20
"""Samples of each task that a measurement tests on."""

BUDGET = 60.0
"""Seconds for all measurements; when they are spent, what is missing is told from what was measured."""


Kind = tuple[str, str, int]
"""A model, a method, and how many runs stand side by side: what makes a step cost what it does."""


@final
@dataclass(frozen=True)
class Rate:
    """Seconds that a wave takes to start, and for each sample of its runs' training."""

    start: float
    a_sample: float

    def seconds(self, samples: int) -> float:
        """For so many samples, each counted once an epoch."""
        return self.start + self.a_sample * samples


@final
@dataclass
class Cost:
    """What runs will cost, as far as one can tell: remembers what it measured, so that what is alike is measured once.

    Args:
        runner: says where the runs would be done.
        known: results from which to tell.
        budget: seconds for all measurements.
    """

    runner: Runner
    known: Iterable[RunResult] = ()
    budget: float = BUDGET
    _rates: dict[Kind, Rate] = field(default_factory=dict, init=False)
    _counts: dict[tuple[object, ...], int] = field(default_factory=dict, init=False)
    _spent: float = field(default=0.0, init=False)

    def seconds(self, configs: Sequence[RunConfig], jobs: int = 1) -> float:
        """How long the runs that are missing will take; 0 when all are there.

        Args:
            configs: the runs.
            jobs: processes that share them.
        """
        missing = self.runner.unfinished(configs)
        most = LARGEST_GROUP.get(self.runner.device.type, 1)
        waves = [wave for group in self.runner.groups(missing) for wave in cut(group, most)]
        return sum(self._wave(wave) for wave in waves) / jobs

    def _wave(self, wave: Sequence[RunConfig]) -> float:
        remembered = self._remembered(wave[0])
        if remembered is not None:
            return remembered * len(wave)
        return self._rate(wave).seconds(self._samples(wave[0]))

    def _samples(self, config: RunConfig) -> int:
        """How many a run trains on; the same for every method and seed."""
        kind = (config.benchmark, config.dataset, config.epochs, config.validation, str(config.benchmark_parameters))
        if kind not in self._counts:
            self._counts[kind] = _samples(build(config, self.runner.data_dir))
        return self._counts[kind]

    def _remembered(self, config: RunConfig) -> float | None:
        """The mean seconds of a run like this one that was done on such a device."""
        here = describe_environment(self.runner.device)
        times = [
            result.seconds
            for result in self.known
            if (result.config.benchmark, result.config.method, result.config.epochs)
            == (config.benchmark, config.method, config.epochs)
            and result.environment.get("device_name") == here["device_name"]
            and result.status == "finished"
        ]
        return Estimate.of(times).mean if times else None

    def _rate(self, wave: Sequence[RunConfig]) -> Rate:
        config = wave[0]
        kind = (config.model, config.method, len(wave))
        if kind not in self._rates:
            told = told_from(kind, self._rates) if self._spent > self.budget else None
            self._rates[kind] = self._measured(wave) if told is None else told
        return self._rates[kind]

    def _measured(self, wave: Sequence[RunConfig]) -> Rate:
        config, started = wave[0], time.perf_counter()
        self.runner.notice(f"Measuring {config.method} on {config.benchmark}.")
        plans = [build(each, self.runner.data_dir) for each in wave]
        rate = measure(plans, SAMPLES.get(config.model, SAMPLES["convnet"]), self.runner.device)
        self._spent += time.perf_counter() - started
        return rate


def told_from(kind: Kind, rates: Mapping[Kind, Rate]) -> Rate | None:
    """A rate that was not measured, from others: what a method costs more than another on one model, it costs on another too.

    Where nothing tells that, it is the slowest on the same model; None where there is none.

    Args:
        kind: what the rate is of.
        rates: those that are known.
    """
    model, method, _ = kind
    beside = [known for known in rates if known[0] == model]
    for known in sorted(beside, key=lambda known: known[2] != kind[2]):
        pairs = [
            (rates[a], rates[b]) for a in rates for b in rates if a[1:] == (method, b[2]) and b[:2] == (a[0], known[1])
        ]
        for own, other in pairs:
            if own.a_sample > 0 and other.a_sample > 0:
                ratio = own.a_sample / other.a_sample * kind[2] / known[2]
                return Rate(rates[known].start * ratio, rates[known].a_sample * ratio)
    alike = [rates[known] for known in beside if known[2] == kind[2]]
    return max(alike, key=lambda rate: rate.a_sample, default=None)


def measure(plans: Sequence[Plan], samples: tuple[int, int], device: torch.device) -> Rate:
    """The rate of runs side by side, or of one alone, from two that see few samples of each task.

    Args:
        plans: the runs.
        samples: of each task, for the first and for the second.
        device: where they are done.
    """
    short, long = ([_cut_short(plan, count) for plan in plans] for count in samples)
    if device.type != "cpu":
        _timed(short, device)  # the first time anything runs there, much is loaded that is not loaded again
    first, second = _timed(short, device), _timed(long, device)
    few, many = _samples(short[0]), _samples(long[0])
    a_sample = max(0.0, second - first) / (many - few) if many > few else first / few
    return Rate(max(0.0, first - a_sample * few), a_sample)


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


def _cut_short(plan: Plan, samples: int) -> Plan:
    """The same run with an epoch of a few samples of each task."""
    tasks = tuple(_few(task, samples) for task in plan.stream)
    return dataclasses.replace(plan, stream=dataclasses.replace(plan.stream, tasks=tasks), epochs=1)


def _few(task: Task, samples: int) -> Task:
    validation = None if task.validation is None else _first(task.validation, TESTED)
    return dataclasses.replace(
        task, train=_first(task.train, samples), test=_first(task.test, TESTED), validation=validation
    )


def _first(split: Split, samples: int) -> Split:
    # What is no array cannot be cut; it is measured whole.
    return split.first(samples) if isinstance(split, ArraySplit) else split


def _samples(plan: Plan) -> int:
    return plan.epochs * _training_samples(plan.stream)


def _training_samples(stream: TaskStream) -> int:
    return sum(len(task.train) for task in stream)
