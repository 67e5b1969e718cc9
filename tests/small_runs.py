"""Runs that take a fraction of a second: a few tasks of random images, every method, one head or several."""

import dataclasses
from functools import partial

import numpy as np
import torch

from fopng.lab.benchmarks import Scenario, Task, TaskStream
from fopng.lab.benchmarks.models import MLP, ConvNet
from fopng.lab.engine import Plan, all_at_once, one_by_one
from fopng.optim.registry import METHODS

CPU = torch.device("cpu")

SETTINGS = {
    "sgd": {"lr": 0.05},
    "adam": {"lr": 1e-2},
    "ewc": {"lr": 0.05, "strength": 10.0, "fisher_samples": 20},
    "fng": {"lr": 0.05, "fisher_samples": 20},
    "ogd": {"lr": 0.05, "gradients_per_task": 5},
    "fopng": {"lr": 0.05, "gradients_per_task": 5, "labels": "sampled"},
    "fopng-prefisher": {"lr": 0.05, "gradients_per_task": 5, "momentum": 0.5},
    "ong": {"lr": 0.05, "gradients_per_task": 5},
    "natural-ogd": {"lr": 0.05, "gradients_per_task": 5},
    "si": {"lr": 0.05, "strength": 0.5, "damping": 0.1},
    "mas": {"lr": 0.05, "sensitivity_samples": 20},
    "lwf": {"lr": 0.05, "distilled_samples": 20, "replay_samples": 5},
    "er": {"lr": 0.05, "capacity": 11, "replay_samples": 4},
    "gem": {"lr": 0.05, "samples_per_task": 7, "momentum": 0.5},
    "a-gem": {"lr": 0.05, "samples_per_task": 7, "replay_samples": 4},
    "online-ewc": {"lr": 0.05, "strength": 10.0, "fisher_samples": 20},
    "fopng-k": {"lr": 0.05, "tolerance": None, "rehearse": 0.0, "strength": 0.1, "fisher_samples": 20, "rank": 6},
    "gpm": {"lr": 0.05, "threshold": 0.7, "threshold_growth": 0.05, "input_samples": 20},
    "sgp": {"lr": 0.05, "threshold": 0.7, "input_samples": 20},
    "ncl": {"lr": 0.05, "strength": 10.0, "fisher_samples": 20, "momentum": 0.5},
    "joint": {"lr": 0.05},
}


def stream(scenario=Scenario.DOMAIN, *, tasks=3, samples=43, shape=(1, 4, 4), validation=False, seed=0):
    """Tasks whose classes differ in brightness, each in pixels of its own."""
    random = np.random.default_rng(seed)

    def part(count, shift):
        labels = np.arange(count) % 2
        images = random.normal(size=(count, *shape)) + np.roll(np.linspace(-1, 1, int(np.prod(shape))), shift).reshape(
            shape
        ) * (2 * labels - 1).reshape(-1, *[1] * len(shape))
        return images.astype(np.float32), labels

    made = [
        Task.of(
            f"task {number}",
            train=part(samples, 3 * number),
            test=part(30, 3 * number),
            validation=part(11, 3 * number) if validation else None,
        )
        for number in range(tasks)
    ]
    return TaskStream.of("small", made, scenario)


def plan(method="fopng", tasks=None, **changes):
    tasks = stream() if tasks is None else tasks
    network = ConvNet if tasks.input_shape[0] == 3 else partial(MLP, hidden=(8,))
    entry = METHODS[method]
    made = Plan(
        label=f"small {method}",
        stream=tasks,
        stages=all_at_once(tasks) if entry.joint else one_by_one(tasks),
        make_model=lambda seed: network(tasks.input_shape, tasks.heads, seed=seed),
        make_optimizer=partial(entry.optimizer, **SETTINGS.get(method, {"lr": 0.05})),
        first_task_lr=None if entry.joint else 0.1,
        epochs=2,
        batch_size=5,
        seed=0,
    )
    return dataclasses.replace(made, **changes)


def numbers(outcome):
    """What must not change: all but what it cost."""
    costs = ("seconds_by_phase", "peak_memory_bytes")
    return {name: value for name, value in vars(outcome).items() if name not in costs}


def same(first, second):
    """Whether two states are equal to the bit, tensors and arrays included."""
    if isinstance(first, dict):
        return first.keys() == second.keys() and all(same(first[name], second[name]) for name in first)
    if isinstance(first, list | tuple):
        return len(first) == len(second) and all(map(same, first, second))
    if isinstance(first, torch.Tensor):
        return first.dtype == second.dtype and first.numpy().tobytes() == second.numpy().tobytes()
    if isinstance(first, np.ndarray):
        return first.tobytes() == second.tobytes()
    return first == second


def final_state(checkpoint):
    """Everything in a checkpoint that must not change."""
    return {name: part for name, part in checkpoint.load().state.items() if name != "costs"}
