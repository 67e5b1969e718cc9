"""A network with one head a task: `predict` takes the head from the batch, and new heads may be added on the way.

python examples/multihead.py          (needs scikit-learn: pip install "fopng[demo]")
"""

import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn

import fopng

PAIRS = [(0, 1), (2, 3), (4, 5), (6, 7), (8, 9)]


class MultiHead(nn.Module):
    """A body that all tasks share, and a head for each task; it answers with the head of the task at hand."""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(64, 50), nn.ReLU())
        self.heads = nn.ModuleList()

    def forward(self, x, task):
        """Logits of one task's head."""
        return self.heads[task](self.body(x))


class ByTask(fopng.PredictTask):
    """Batches (x, y, task): answered by the head of their task, and by an old head where a method asks for that (LwF)."""

    def __call__(self, model, batch):
        """Logits and targets."""
        x, y, task = batch
        return model(x, task), y

    def task_of(self, batch):
        """The number of the task."""
        return batch[2]

    def as_task(self, batch, task):
        """The same samples, as if they were of another task."""
        return (*batch[:2], task)


def make_task(first, second):
    """Real 8 x 8 digits of two classes, labelled 0 and 1, split into training and test."""
    digits = load_digits()
    chosen = (digits.target == first) | (digits.target == second)
    x = torch.tensor(digits.data[chosen], dtype=torch.float32) / 16
    y = torch.tensor(digits.target[chosen] == second).long()
    cut = len(x) * 4 // 5
    return (x[:cut], y[:cut]), (x[cut:], y[cut:])


def learn(make_optimizer):
    """Learn five pairs of digits one after the other and return the accuracies at the end."""
    torch.manual_seed(0)
    model = MultiHead()
    model.heads.append(nn.Linear(50, 2))
    # the Fisher, stored gradients and kept samples go through the head of their task
    optimizer = make_optimizer(model, ByTask())
    tests = []
    for task, pair in enumerate(PAIRS):
        (x, y), test = make_task(*pair)
        tests.append(test)
        if task == len(model.heads):
            model.heads.append(nn.Linear(50, 2))  # begin_task takes it in
        batches = [(inputs, targets, task) for inputs, targets in zip(x.split(10), y.split(10), strict=True)]
        optimizer.begin_task(task)
        for _ in range(5):
            optimizer.refresh(batches)
            for inputs, targets, _ in batches:
                optimizer.zero_grad()
                F.cross_entropy(model(inputs, task), targets).backward()
                optimizer.step()
        optimizer.end_task(batches)
    with torch.no_grad():
        return [(model(x, task).argmax(1) == y).float().mean().item() for task, (x, y) in enumerate(tests)]


if __name__ == "__main__":
    methods = {
        "SGD": lambda model, predict: fopng.SGD(model, lr=1e-1, predict=predict),
        "OGD": lambda model, predict: fopng.OGD(model, lr=1e-1, predict=predict),
        "FOPNG": lambda model, predict: fopng.FOPNG(
            model, lr=1e-3, damping=1e-2, projection="orthogonal", predict=predict
        ),
        "LwF": lambda model, predict: fopng.LwF(model, lr=1e-1, predict=predict),
        "ER": lambda model, predict: fopng.ER(model, lr=1e-1, predict=predict),
    }
    for name, make_optimizer in methods.items():
        accuracies = learn(make_optimizer)
        print(f"{name:6} " + " ".join(f"{a:6.1%}" for a in accuracies) + f"   mean {sum(accuracies) / 5:.1%}")
