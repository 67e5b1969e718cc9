"""SGD on R copies of the paper's MLP as one would write it by hand for a GPU: nothing but products, captured in a CUDA graph."""

import itertools
from collections.abc import Callable

import torch
from torch import Tensor

SIZES = (784, 100, 100, 10)


class HandWritten:
    """Forward, backward and update of `[R, out, in]` weights, in place.

    Args:
        replicas: R.
        samples: the training samples, `[N, 784]`, shared by all.
        labels: `[N]`.
        orders: the order of each copy's samples, `[R, N]`.
        batch: samples a step.
        lr: the learning rate.
    """

    def __init__(self, replicas: int, samples: Tensor, labels: Tensor, orders: Tensor, batch: int, lr: float) -> None:
        device = samples.device
        self.samples, self.labels, self.orders, self.batch, self.lr = samples, labels, orders, batch, lr
        self.weights = [0.05 * torch.randn(replicas, o, i, device=device) for i, o in itertools.pairwise(SIZES)]
        self.biases = [torch.zeros(replicas, 1, o, device=device) for o in SIZES[1:]]
        self.place = torch.zeros((), dtype=torch.int64, device=device)
        self.offsets = torch.arange(batch, device=device)
        self.targets = torch.eye(SIZES[-1], device=device)

    def step(self) -> None:
        """One step on the next batch of each copy."""
        rows = self.orders.index_select(1, self.place * self.batch + self.offsets)
        inputs, y = [self.samples[rows]], self.targets[self.labels[rows]]
        for number, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            z = torch.baddbmm(bias, inputs[-1], weight.mT)
            inputs.append(z.relu_() if number < len(self.weights) - 1 else z)
        signal = (inputs.pop().softmax(-1) - y) / self.batch
        for weight, bias, given in zip(self.weights[::-1], self.biases[::-1], inputs[::-1], strict=True):
            below = torch.bmm(signal, weight) * (given > 0) if weight is not self.weights[0] else signal
            weight.baddbmm_(signal.mT, given, alpha=-self.lr)
            bias.sub_(self.lr * signal.sum(1, keepdim=True))
            signal = below
        self.place.add_(1)

    @torch.no_grad()
    def captured(self) -> Callable[[], None]:
        """A call that replays one step."""
        for _ in range(3):
            self.step()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self.step()
        return graph.replay
