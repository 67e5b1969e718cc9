"""Two tasks one after the other, with plain SGD and with FOPNG: how much of the first is left?

python examples/quickstart.py          (needs scikit-learn: pip install "fopng[demo]")
"""

import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn

import fopng

EPOCHS = 5


def make_tasks():
    """Real 8 x 8 digits: upright in the first task, turned by 90 degrees in the second."""
    digits = load_digits()
    images, labels = torch.tensor(digits.images, dtype=torch.float32) / 16, torch.tensor(digits.target)
    for turns in (0, 1):
        pixels = torch.rot90(images, turns, dims=(1, 2)).flatten(1)
        yield (pixels[:1400], labels[:1400]), (pixels[1400:], labels[1400:])


def accuracy(model, data):
    """The share of right answers."""
    with torch.no_grad():
        return (model(data[0]).argmax(1) == data[1]).float().mean().item()


def learn(make_optimizer):
    """Train on one task after the other and return the accuracy on each at the end."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 100), nn.ReLU(), nn.Linear(100, 10))
    optimizer = make_optimizer(model)
    tasks = list(make_tasks())
    for number, (train, _) in enumerate(tasks):
        loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(*train), batch_size=10, shuffle=True)
        optimizer.begin_task(number)
        for _ in range(EPOCHS):
            optimizer.refresh(loader)
            for x, y in loader:
                optimizer.zero_grad()
                F.cross_entropy(model(x), y).backward()
                optimizer.step()
        optimizer.end_task(loader)
    return [accuracy(model, test) for _, test in tasks]


def make_fopng(model):
    """FOPNG after a first task that plain SGD learns."""
    first = torch.optim.SGD(model.parameters(), lr=1e-1)
    return fopng.FOPNG(model, lr=3e-3, gradients_per_task=200, projection="orthogonal", first_task=first)


if __name__ == "__main__":
    for name, make_optimizer in {"SGD": lambda model: fopng.SGD(model, lr=1e-1), "FOPNG": make_fopng}.items():
        first, second = learn(make_optimizer)
        print(f"{name:6} first task {first:.1%}, second task {second:.1%}, mean {(first + second) / 2:.1%}")
