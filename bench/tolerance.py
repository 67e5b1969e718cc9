"""What a tolerance costs: a step of the default, of the bend alone, and of a fixed strength, beside plain SGD.

    OMP_NUM_THREADS=1 python bench/tolerance.py

The paper's MLP, batches of ten, two old tasks; processor time, the kinds in turn, the least of eight rounds.
"""

import time

import torch
from torch import nn
from torch.nn.functional import cross_entropy

import fopng

KINDS = {
    "SGD": ("SGD", {}),
    "fixed strength": ("KroneckerFOPNG", {"tolerance": None, "rehearse": 0.0}),
    "measured, bend alone": ("KroneckerFOPNG", {"rehearse": 0.0}),
    "the default": ("KroneckerFOPNG", {}),
}
ROUNDS, STEPS, BATCH = 8, 300, 10


def learner(kind):
    """An optimizer that has learnt two tasks and begun a third, and the third's batches."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(784, 100), nn.ReLU(), nn.Linear(100, 100), nn.ReLU(), nn.Linear(100, 10))
    name, settings = KINDS[kind]
    optimizer = getattr(fopng, name)(model, 0.05, **settings)
    for task in range(3):
        batches = [(torch.rand(BATCH, 784), torch.randint(10, (BATCH,))) for _ in range(100)]
        optimizer.begin_task(task)
        walk(optimizer, batches, 50)
        if task < 2:
            optimizer.end_task(batches)
    return optimizer, batches


def walk(optimizer, batches, steps):
    """So many steps."""
    for step in range(steps):
        x, y = batches[step % len(batches)]
        optimizer.zero_grad()
        cross_entropy(optimizer.model(x), y).backward()
        optimizer.step()


def main():
    """Measure and print."""
    learners = {kind: learner(kind) for kind in KINDS}
    least = dict.fromkeys(KINDS, float("inf"))
    for _ in range(ROUNDS):
        for kind, (optimizer, batches) in learners.items():
            began = time.process_time()
            walk(optimizer, batches, STEPS)
            least[kind] = min(least[kind], (time.process_time() - began) / STEPS)
    for kind, seconds in least.items():
        print(f"{kind:22} {1e6 * seconds:8.0f} us, {seconds / least['the default']:5.2f} of the default")


if __name__ == "__main__":
    main()
