"""How near a Kronecker product comes to the exact Fisher of a weight used at many positions: `python bench/shared_weights.py`.

Four ways, each with the error `|K - F| / |F|` and the trace of K over that of F: all positions alike ("expand", KFC), their sums
("reduce"), "expand" with the exact trace (what `fopng-k` keeps), and the product with the partial traces of F. Float64, a small
network that has learnt its task, labels drawn from the model, one sample at a time.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

SAMPLES, STEPS, LENGTH, WIDTH, CLASSES = 300, 200, 12, 8, 4


class Pooled(nn.Module):
    """The mean over positions is classified."""

    def __init__(self) -> None:
        super().__init__()
        self.before, self.layer, self.head = nn.Linear(6, WIDTH), nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.head(self.layer(self.before(x).tanh()).tanh().mean(1))
        return found


class EachWord(Pooled):
    """Every position has an answer of its own."""

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.head(self.layer((self.before(x) + self.before(x.roll(1, 1))).tanh()).tanh())
        return found


class First(Pooled):
    """The first position attends to all, and is classified."""

    def forward(self, x: Tensor) -> Tensor:
        z = self.layer(self.before(x))
        found: Tensor = self.head(F.scaled_dot_product_attention(z, z, z).relu()[:, 0])
        return found


def data(model: nn.Module, teacher: Tensor, n: int) -> tuple[Tensor, Tensor]:
    """Random sequences, labelled by a linear teacher."""
    x = torch.randn(n, LENGTH, 6, dtype=torch.float64)
    seen = x + x.roll(1, 1) if isinstance(model, EachWord) else 3 * x.mean(1)
    return x, (seen @ teacher).argmax(-1)


def factors(model: Pooled, x: Tensor) -> tuple[Tensor, Tensor]:
    """Inputs and signals `[n, t, 8]` of the layer, for labels drawn from the model."""
    kept: dict[str, Tensor] = {}

    def keep(_: nn.Module, given: tuple[Tensor, ...], output: Tensor) -> None:
        kept.update(a=given[0].detach(), output=output)

    hook = model.layer.register_forward_hook(keep)
    p = model(x).softmax(-1)
    hook.remove()
    drawn = torch.multinomial(p.detach().flatten(0, -2), 1).view(p.shape[:-1])
    log_p = p.log().gather(-1, drawn.unsqueeze(-1)).sum()
    return kept["a"], torch.autograd.grad(log_p, kept["output"])[0]


def products(a: Tensor, d: Tensor) -> dict[str, Tensor]:
    """The exact Fisher of the weight, and the Kronecker products that stand for it."""
    g = d.mT @ a
    exact = g.flatten(1).T @ g.flatten(1) / len(g)
    A, G = (a.mT @ a).mean(0), (d.mT @ d).mean(0) / LENGTH
    mean, total = a.mean(1), d.sum(1)
    inputs, outputs = (g.mT @ g).mean(0), (g @ g.mT).mean(0)
    expand = torch.kron(G, A)
    return {
        "exact": exact,
        "expand": expand,
        "reduce": torch.kron(total.T @ total, mean.T @ mean) / len(g) ** 2,
        "expand, exact trace": expand * exact.trace() / expand.trace(),
        "partial traces": torch.kron(outputs, inputs) / inputs.trace(),
    }


def main() -> None:
    """Print the table."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    for kind in (Pooled, EachWord, First):
        model, teacher = kind().double(), torch.randn(6, CLASSES, dtype=torch.float64)
        optimizer = torch.optim.Adam(model.parameters(), 3e-3)
        for _ in range(STEPS):
            x, y = data(model, teacher, 64)
            optimizer.zero_grad()
            F.cross_entropy(model(x).flatten(0, -2), y.flatten()).backward()
            optimizer.step()
        found = products(*factors(model, data(model, teacher, SAMPLES)[0]))
        exact = found.pop("exact")
        for name, K in found.items():
            error, share = float((K - exact).norm() / exact.norm()), float(K.trace() / exact.trace())
            print(f"{kind.__name__:9} {name:20} error {error:.2f}  trace {share:.2f}")


if __name__ == "__main__":
    main()
