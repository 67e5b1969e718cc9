"""Avalanche's Naive strategy on five tasks of two digits each, with SGD and with methods from here: a plug-in is all it takes.

python examples/avalanche_naive.py          (pip install "fopng[avalanche,demo]")
"""

import torch
from avalanche.benchmarks import tensors_benchmark
from avalanche.training.supervised import Naive
from sklearn.datasets import load_digits
from torch import nn

import fopng
from fopng.integrations.avalanche import ContinualPlugin, predict_experience


def make_tasks():
    """Real 8 x 8 digits, 0 and 1, then 2 and 3, and so on; the model is not told which pair, and says even or odd."""
    digits = load_digits()
    x, y = torch.tensor(digits.data, dtype=torch.float32) / 16, torch.tensor(digits.target)
    for pair in range(5):
        of_pair = y // 2 == pair
        yield (
            (x[:1400][of_pair[:1400]], y[:1400][of_pair[:1400]] % 2),
            (x[1400:][of_pair[1400:]], y[1400:][of_pair[1400:]] % 2),
        )


def learn(make_optimizer):
    """Train on one experience after the other and return the accuracies at the end."""
    torch.manual_seed(0)
    training, tests = zip(*make_tasks(), strict=True)
    benchmark = tensors_benchmark(train_tensors=training, test_tensors=tests, task_labels=[0] * 5)
    model = nn.Sequential(nn.Linear(64, 100), nn.ReLU(), nn.Linear(100, 2))
    strategy = Naive(
        model=model,
        optimizer=make_optimizer(model),
        criterion=nn.CrossEntropyLoss(),
        train_mb_size=10,
        train_epochs=5,
        evaluator=None,
        plugins=[ContinualPlugin()],
    )
    for experience in benchmark.train_stream:
        strategy.train(experience)
    with torch.no_grad():
        return [(model(x).argmax(1) == y).float().mean().item() for x, y in tests]


if __name__ == "__main__":
    methods = {
        "SGD": lambda model: fopng.SGD(model, lr=1e-1, predict=predict_experience),
        "OGD": lambda model: fopng.OGD(model, lr=1e-1, predict=predict_experience),
        "FOPNG": lambda model: fopng.FOPNG(
            model, lr=1e-3, damping=1e-2, projection="orthogonal", predict=predict_experience
        ),
    }
    for name, make_optimizer in methods.items():
        accuracies = learn(make_optimizer)
        print(f"{name:6} " + " ".join(f"{a:6.1%}" for a in accuracies) + f"   mean {sum(accuracies) / 5:.1%}")
