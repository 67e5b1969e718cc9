"""Small models of every kind, each with a batch: what the per-sample gradients are held to the oracle on."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.parametrizations import weight_norm

from oracle import ask_pair

N = 4
"""Samples in a batch."""


@dataclass
class Case:
    """A model in float64, a batch of N samples, and how the one answers the other."""

    model: nn.Module
    batch: Any
    ask: Callable[..., Any] = ask_pair


class Answers(nn.Module):
    """Layers, and a function of (layers, input) that says how they are used."""

    def __init__(self, forward: Callable[..., Tensor], **layers: nn.Module) -> None:
        super().__init__()
        self.layers = nn.ModuleDict(layers)
        self.how = forward

    def forward(self, x: Tensor) -> Tensor:
        return self.how(self.layers, x)


def labels(classes: int = 3) -> Tensor:
    return torch.arange(N) * 2 % classes


def case(model: nn.Module, *shape: int, classes: int = 3) -> Case:
    return Case(model.double(), (torch.randn(N, *shape, dtype=torch.float64), labels(classes)))


def tokens(model: nn.Module, *, length: int = 6, words: int = 7) -> Case:
    return Case(model.double(), (torch.randint(0, words, (N, length)), labels()))


def mlp() -> Case:
    return case(nn.Sequential(nn.Linear(5, 7), nn.ReLU(), nn.Linear(7, 6), nn.Tanh(), nn.Linear(6, 3)), 5)


def cnn() -> Case:
    return case(
        nn.Sequential(
            nn.Conv2d(2, 4, 3, padding=1),
            nn.ReLU(inplace=True),
            nn.Conv2d(4, 3, 3, stride=2, groups=1),
            nn.BatchNorm2d(3),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Dropout(0.5),
            nn.Linear(3, 3),
        ),
        *(2, 6, 6),
    )


def transformer() -> Case:
    layer = nn.TransformerEncoderLayer(8, 2, dim_feedforward=10, dropout=0.1, batch_first=True)
    encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
    return tokens(
        Answers(
            lambda m, x: m["head"](m["encoder"](m["embed"](x)).mean(1)),
            embed=nn.Embedding(7, 8),
            encoder=encoder,
            head=nn.Linear(8, 3),
        )
    )


def _unroll(m: nn.ModuleDict, x: Tensor) -> Tensor:
    state = x.new_zeros(x.shape[0], 6)
    for t in range(x.shape[1]):
        state = m["cell"](x[:, t], state)
    return m["head"](state)


def recurrent() -> Case:
    return case(Answers(_unroll, cell=nn.GRUCell(4, 6), head=nn.Linear(6, 3)), 3, 4)


def _unroll_linear(m: nn.ModuleDict, x: Tensor) -> Tensor:
    state = x.new_zeros(x.shape[0], 6)
    for t in range(x.shape[1]):
        state = torch.tanh(m["read"](x[:, t]) + m["keep"](state))
    return m["head"](state)


def recurrent_linear() -> Case:
    return case(
        Answers(_unroll_linear, read=nn.Linear(4, 6), keep=nn.Linear(6, 6, bias=False), head=nn.Linear(6, 3)), 3, 4
    )


def multi_head() -> Case:
    heads = nn.ModuleList([nn.Linear(6, 3) for _ in range(3)])
    return case(Answers(lambda m, x: m["heads"][1](m["trunk"](x).relu()), heads=heads, trunk=nn.Linear(5, 6)), 5)


def residual() -> Case:
    def forward(m: nn.ModuleDict, x: Tensor) -> Tensor:
        h = F.relu(m["first"](x))
        out = m["second"](h)
        out += h
        return m["head"](F.relu_(out))

    return case(Answers(forward, first=nn.Linear(5, 6), second=nn.Linear(6, 6), head=nn.Linear(6, 3)), 5)


def used_twice() -> Case:
    return case(
        Answers(lambda m, x: m["head"](m["block"](m["block"](x)).tanh()), block=nn.Linear(5, 5), head=nn.Linear(5, 3)),
        5,
    )


def conv_used_twice() -> Case:
    return case(
        Answers(
            lambda m, x: m["head"](m["conv"](m["conv"](x).tanh()).flatten(1)),
            conv=nn.Conv1d(2, 2, 3, padding=1),
            head=nn.Linear(10, 3),
        ),
        *(2, 5),
    )


def tied() -> Case:
    """A language model's tied embedding and decoder."""
    embed, decoder = nn.Embedding(3, 6), nn.Linear(6, 3)
    decoder.weight = embed.weight
    return tokens(
        Answers(
            lambda m, x: m["out"](m["mix"](m["embed"](x).mean(1)).tanh()), embed=embed, mix=nn.Linear(6, 6), out=decoder
        ),
        words=3,
    )


def tied_linears() -> Case:
    first, second = nn.Linear(5, 5), nn.Linear(5, 5, bias=False)
    second.weight = first.weight
    return case(nn.Sequential(first, nn.Tanh(), second, nn.Linear(5, 3)), 5)


def shared_block() -> Case:
    """One module under two parents, with others between them in the flat order."""

    class Block(nn.Module):
        def __init__(self, inner: nn.Module) -> None:
            super().__init__()
            self.inner = inner
            self.scale = nn.Parameter(torch.rand(5))

        def forward(self, x: Tensor) -> Tensor:
            return F.linear(x, self.inner.weight * self.scale, self.inner.bias).tanh()

    inner = nn.Linear(5, 5)
    return case(nn.Sequential(inner, nn.Linear(5, 5), Block(inner), nn.Linear(5, 3)), 5)


def sequence_factored() -> Case:
    """Two positions through a wide layer: factors are smaller."""
    return case(
        Answers(lambda m, x: m["head"](m["wide"](x).tanh().mean(1)), wide=nn.Linear(8, 9), head=nn.Linear(9, 3)), 2, 8
    )


def sequence_dense() -> Case:
    """Many positions through a narrow layer: the gradient is smaller."""
    return case(
        Answers(lambda m, x: m["head"](m["thin"](x).tanh().mean(1)), thin=nn.Linear(3, 4), head=nn.Linear(4, 3)), 9, 3
    )


def folded() -> Case:
    """Positions folded into the batch axis, as vision and graph models do."""

    def forward(m: nn.ModuleDict, x: Tensor) -> Tensor:
        n, t = x.shape[:2]
        return m["head"](m["norm"](m["each"](x.reshape(n * t, -1)).tanh()).reshape(n, t, -1).sum(1))

    return case(Answers(forward, each=nn.Linear(3, 4), norm=nn.LayerNorm(4), head=nn.Linear(4, 3)), 3, 3)


def time_first() -> Case:
    def forward(m: nn.ModuleDict, x: Tensor) -> Tensor:
        h = m["embed"](x.transpose(0, 1))
        attended, _ = m["attention"](h, h, h)
        return m["head"](m["norm"](attended).mean(0))

    parts = {"embed": nn.Linear(4, 8), "attention": nn.MultiheadAttention(8, 2), "norm": nn.LayerNorm(8)}
    return case(Answers(forward, **parts, head=nn.Linear(8, 3)), 6, 4)


def time_first_confusing() -> Case:
    """As many positions as the trial batch has samples."""
    confusing = time_first()
    return Case(confusing.model, (torch.randn(N, 5, 4, dtype=torch.float64), labels()))


def class_token() -> Case:
    """A vision transformer in small: parameters on the root, positions, a token."""

    class Vision(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.token = nn.Parameter(torch.randn(1, 1, 8))
            self.position = nn.Parameter(torch.randn(1, 5, 8))
            self.temperature = nn.Parameter(torch.tensor(1.5))
            self.patch = nn.Conv2d(1, 8, 2, stride=2)
            self.block = nn.TransformerEncoderLayer(8, 2, 12, batch_first=True, norm_first=True)
            self.head = nn.Linear(8, 3)

        def forward(self, x: Tensor) -> Tensor:
            patches = self.patch(x).flatten(2).mT
            h = torch.cat([self.token.expand(len(x), -1, -1), patches], 1) + self.position
            return self.head(self.block(h)[:, 0]) * self.temperature

    return case(Vision(), 1, 4, 4)


def position_embedding() -> Case:
    def forward(m: nn.ModuleDict, x: Tensor) -> Tensor:
        return m["head"]((m["word"](x) + m["place"](torch.arange(x.shape[1]))).tanh().sum(1))

    return tokens(Answers(forward, word=nn.Embedding(7, 4), place=nn.Embedding(6, 4), head=nn.Linear(4, 3)))


def padding() -> Case:
    return tokens(
        Answers(
            lambda m, x: m["head"](m["e"](x).tanh().sum(1)), e=nn.Embedding(7, 4, padding_idx=2), head=nn.Linear(4, 3)
        )
    )


def parametrised() -> Case:
    return case(nn.Sequential(weight_norm(nn.Linear(5, 6)), nn.Tanh(), weight_norm(nn.Linear(6, 3))), 5)


def custom() -> Case:
    class Gate(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Parameter(torch.randn(5)), nn.Parameter(torch.randn(5))

        def forward(self, x: Tensor, *, times: int) -> dict[str, Tensor]:
            return {"out": torch.sigmoid(x * self.a * times) + self.b}

    return case(Answers(lambda m, x: m["head"](m["gate"](x, times=2)["out"]), gate=Gate(), head=nn.Linear(5, 3)), 5)


def activations_with_parameters() -> Case:
    return case(nn.Sequential(nn.Linear(5, 6), nn.PReLU(), nn.PReLU(6), nn.Linear(6, 3)), 5)


def transposed() -> Case:
    return case(
        nn.Sequential(nn.ConvTranspose1d(2, 3, 2), nn.InstanceNorm1d(3, affine=True), nn.Flatten(), nn.Linear(18, 3)),
        2,
        5,
    )


def mutates_its_input() -> Case:
    return case(
        Answers(lambda m, x: m["head"](m["body"](x.sub_(1)).tanh()), body=nn.Linear(5, 4), head=nn.Linear(4, 3)), 5
    )


def mixture() -> Case:
    """Experts that are called only with the samples sent to them."""

    class Mixture(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.experts = nn.ModuleList([nn.Linear(5, 3) for _ in range(2)])

        def forward(self, x: Tensor) -> Tensor:
            chosen = (x[:, 0] > 0).long()
            out = x.new_zeros(len(x), 3)
            for k, expert in enumerate(self.experts):
                if bool((chosen == k).any()):
                    out[chosen == k] = expert(x[chosen == k])
            return out

    return case(nn.Sequential(nn.Linear(5, 5), Mixture()), 5)


def _recur(m: nn.ModuleDict, x: Tensor) -> Tensor:
    out = m["rnn"](x)[0]
    return m["head"](out[:, -1] if m["rnn"].batch_first else out[-1])


def lstm() -> Case:
    return case(Answers(_recur, rnn=nn.LSTM(4, 5, num_layers=2, batch_first=True), head=nn.Linear(5, 3)), 6, 4)


def gru_time_first() -> Case:
    return case(Answers(lambda m, x: _recur(m, x.transpose(0, 1)), rnn=nn.GRU(4, 5), head=nn.Linear(5, 3)), 6, 4)


def packed() -> Case:
    class Packed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rnn, self.head = nn.LSTM(4, 5, batch_first=True), nn.Linear(5, 3)

        def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
            packed = nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
            return self.head(self.rnn(packed)[1][0][0])

    batch = {"x": torch.randn(N, 6, 4, dtype=torch.float64), "lengths": torch.tensor([2, 6, 3, 5]), "y": labels()}
    return Case(Packed().double(), batch, lambda m, b: (m(b["x"], b["lengths"]), b["y"]))


def dictionary() -> Case:
    batch = {"x": torch.randn(N, 5, dtype=torch.float64), "y": labels(), "task": "second"}
    return Case(mlp().model, batch, lambda m, b: (m(b["x"]), b["y"]))


MODELS = {
    build.__name__: build
    for build in (
        *(mlp, cnn, transformer, recurrent, recurrent_linear, multi_head, residual, used_twice, conv_used_twice),
        *(tied, tied_linears, shared_block, sequence_factored, sequence_dense, folded, time_first),
        *(time_first_confusing, class_token, position_embedding, padding, parametrised, custom),
        *(activations_with_parameters, transposed, mutates_its_input, dictionary, lstm, gru_time_first),
    )
}
"""Models that can be asked for replicas at once."""

UNMAPPED = {build.__name__: build for build in (mixture, packed)}
"""Models that `torch.func.vmap` cannot take."""
