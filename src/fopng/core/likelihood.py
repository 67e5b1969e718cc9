"""What a model's outputs mean: the signals that a score sends back from them.

The gradient of any score of a sample is `J^T s`, with `J` the Jacobian of its outputs and `s` the score's derivative at the
outputs. A likelihood gives `s` in closed form: `[..., n, *outputs]`, the shape of the outputs.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Literal, TypeAlias, final, get_args

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

Labels: TypeAlias = Literal["observed", "sampled", "expected"]
"""Which labels a Fisher uses: the data's, one drawn from the model, or all of them, weighted exactly."""

Score: TypeAlias = Literal["ground-truth", "average", "log-likelihood"]
"""Of which score a gradient is stored: the true answer's logit, the mean logit, or the log-likelihood."""

Norm: TypeAlias = Literal["squared-norm"]
"""The squared length of the outputs, whose gradients say how sensitive the answers are."""

Signals: TypeAlias = Literal["normal", "observed", "sampled", "expected"]
"""What is sent back from the outputs for second moments: noise of variance one, or the score of labels as for a Fisher."""


class SharedDraws(ABC):
    """Draws for the samples of this process as one process would draw for all of them."""

    @abstractmethod
    def draw(self, draw: Callable[[Tensor, torch.Generator | None], Tensor], outputs: Tensor) -> Tensor:
        """Draw something for each sample of `outputs [n, ...]`."""


Generators: TypeAlias = torch.Generator | Sequence[torch.Generator] | SharedDraws | None
"""What draws: torch's own generator, another one, one for each replica, or one that several processes share."""


class Likelihood(ABC):
    """The distribution `p(y | outputs)`."""

    @abstractmethod
    def check(self, outputs: Tensor, targets: Tensor | None) -> None:
        """Raise where the targets do not fit the outputs."""

    @abstractmethod
    def observed(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Differentiate `log p(targets | outputs)` with respect to the outputs."""

    @abstractmethod
    def ground_truth(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Differentiate the logit of the true answer."""

    @abstractmethod
    def sample(self, outputs: Tensor, generator: torch.Generator | None) -> Tensor:
        """Draw targets from the model."""

    @abstractmethod
    def expected(self, outputs: Tensor, axes: int) -> Iterator[Tensor]:
        """Yield signals `s_k` with `sum_k s_k s_k^T = E_y[s s^T]` for each sample: the exact Fisher at the outputs.

        Args:
            outputs: `[..., n, *outputs]`.
            axes: how many leading axes number replicas and samples, not outputs.
        """

    @abstractmethod
    def distilled(self, outputs: Tensor, answers: Tensor, temperature: float | Tensor) -> Tensor:
        """Differentiate `E_y log p(y | outputs / T)`, `y` distributed as other answers say: `p(y | answers / T)`.

        Args:
            outputs: `[..., n, *outputs]`.
            answers: of an older model, of the same shape.
            temperature: T; above 1 the smaller probabilities count for more.
        """

    @abstractmethod
    def divergence(self, outputs: Tensor, answers: Tensor, axes: int) -> Tensor:
        """The divergence of the distribution now from an older one, `KL(p(.|answers) | p(.|outputs))`, in nats, `[..., n]`.

        For sequences it is the mean over positions.

        Args:
            outputs: `[..., n, *outputs]`.
            answers: of an older model, of the same shape.
            axes: how many leading axes number replicas and samples.
        """

    def target_counts(self, outputs: Tensor, targets: Tensor | None, axes: int) -> Tensor:
        """Count the targets of each sample that the usual mean loss is over, `[..., n]`, one at least."""
        return outputs.new_full(outputs.shape[:axes], max(1, outputs.shape[axes:].numel()))

    def average(self, outputs: Tensor, axes: int) -> Tensor:
        """Differentiate the mean output of each sample."""
        return torch.full_like(outputs, 1.0 / max(1, outputs.shape[axes:].numel()))

    def counted(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return 1 where an output counts and 0 where the targets leave it out, in a shape that broadcasts."""
        return outputs.new_ones(())


@final
@dataclass(frozen=True)
class Categorical(Likelihood):
    """One class of many: `softmax`; the class is the last axis. Axes between sample and class are positions (tokens).

    Args:
        ignore_index: a target that counts for nothing (padding).
    """

    ignore_index: int = -100

    def check(self, outputs: Tensor, targets: Tensor | None) -> None:
        if targets is None:
            return
        if targets.shape != outputs.shape[:-1] or targets.is_floating_point():
            raise ValueError(
                f"Expected integer targets of shape {tuple(outputs.shape[:-1])} for outputs {tuple(outputs.shape)} "
                f"(the class is the last axis), got {targets.dtype} of shape {tuple(targets.shape)}."
            )
        outside = (targets != self.ignore_index) & ((targets < 0) | (targets >= outputs.shape[-1]))
        if bool(outside.any()):
            raise ValueError(
                f"Expected labels from 0 to {outputs.shape[-1] - 1}, got {targets[outside][0].item()}. "
                "Give the model an output for every label, or relabel the data."
            )

    def _kept(self, targets: Tensor) -> Tensor:
        return (targets != self.ignore_index).unsqueeze(-1)

    def counted(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return self._kept(targets).to(outputs.dtype)

    def ground_truth(self, outputs: Tensor, targets: Tensor) -> Tensor:
        kept = self._kept(targets)
        index = targets.unsqueeze(-1).where(kept, torch.zeros_like(targets).unsqueeze(-1))
        return torch.zeros_like(outputs).scatter(-1, index, kept.to(outputs.dtype))

    def observed(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return self.ground_truth(outputs, targets) - outputs.softmax(-1) * self._kept(targets)

    def distilled(self, outputs: Tensor, answers: Tensor, temperature: float | Tensor) -> Tensor:
        return ((answers / temperature).softmax(-1) - (outputs / temperature).softmax(-1)) / temperature

    def divergence(self, outputs: Tensor, answers: Tensor, axes: int) -> Tensor:
        old = answers.log_softmax(-1)
        # a class that the older model did not have has probability zero, and counts for nothing
        terms = torch.where(old > -torch.inf, old.exp() * (old - outputs.log_softmax(-1)), 0.0)
        return terms.sum(-1).flatten(axes).mean(-1) if terms.dim() > axes + 1 else terms.sum(-1)

    def target_counts(self, outputs: Tensor, targets: Tensor | None, axes: int) -> Tensor:
        if targets is None:
            return outputs.new_full(outputs.shape[:axes], max(1, outputs.shape[axes:-1].numel()))
        kept = (targets != self.ignore_index).to(outputs.dtype)
        return kept.flatten(axes).sum(-1).clamp(min=1) if kept.dim() > axes else kept.clamp(min=1)

    def sample(self, outputs: Tensor, generator: torch.Generator | None) -> Tensor:
        near = _near(outputs, generator)
        # one number a label: the labels do not depend on how the samples were cut into batches
        u = torch.rand(outputs.shape[:-1], generator=generator, device=near.device).unsqueeze(-1)
        below = (near.float().softmax(-1).cumsum(-1) < u).sum(-1)
        return below.clamp(max=outputs.shape[-1] - 1).to(outputs.device)

    def expected(self, outputs: Tensor, axes: int) -> Iterator[Tensor]:
        p = outputs.softmax(-1)
        for position in _cells(outputs.shape[axes:-1]):
            here = _only(p, axes, position)
            for c in range(outputs.shape[-1]):
                root = here[..., c : c + 1].sqrt()
                s = -here * root
                s[..., c : c + 1] += root
                yield s


@final
@dataclass(frozen=True)
class Bernoulli(Likelihood):
    """Several labels at once, each yes or no: `sigmoid` of each output; targets are 0 or 1, of the outputs' shape."""

    def check(self, outputs: Tensor, targets: Tensor | None) -> None:
        _check_shape(outputs, targets)
        if targets is not None and bool(((targets < 0) | (targets > 1)).any()):
            raise ValueError(f"Expected labels from 0 to 1, got values in [{targets.min()}, {targets.max()}].")

    def ground_truth(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return 2 * targets.to(outputs.dtype) - 1

    def observed(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return targets.to(outputs.dtype) - outputs.sigmoid()

    def distilled(self, outputs: Tensor, answers: Tensor, temperature: float | Tensor) -> Tensor:
        return ((answers / temperature).sigmoid() - (outputs / temperature).sigmoid()) / temperature

    def divergence(self, outputs: Tensor, answers: Tensor, axes: int) -> Tensor:
        p = answers.sigmoid()
        yes = p * (logsigmoid(answers) - logsigmoid(outputs))
        no = (1 - p) * (logsigmoid(-answers) - logsigmoid(-outputs))
        return (yes + no).flatten(axes).sum(-1) if outputs.dim() > axes else yes + no

    def sample(self, outputs: Tensor, generator: torch.Generator | None) -> Tensor:
        return torch.bernoulli(_near(outputs, generator).sigmoid(), generator=generator).to(outputs.device)

    def expected(self, outputs: Tensor, axes: int) -> Iterator[Tensor]:
        p = outputs.sigmoid()
        return _one_by_one((p * (1 - p)).sqrt(), axes)


@final
@dataclass(frozen=True)
class Gaussian(Likelihood):
    """Regression with normal noise: the outputs are means.

    Args:
        scale: the noise's standard deviation.
    """

    scale: float = 1.0

    def check(self, outputs: Tensor, targets: Tensor | None) -> None:
        _check_shape(outputs, targets)

    def ground_truth(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return torch.ones_like(outputs)

    def observed(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return (targets.to(outputs.dtype) - outputs) / self.scale**2

    def distilled(self, outputs: Tensor, answers: Tensor, temperature: float | Tensor) -> Tensor:
        return (answers - outputs) / (self.scale * temperature) ** 2

    def divergence(self, outputs: Tensor, answers: Tensor, axes: int) -> Tensor:
        squares = ((outputs - answers) / self.scale).square() / 2
        return squares.flatten(axes).sum(-1) if outputs.dim() > axes else squares

    def sample(self, outputs: Tensor, generator: torch.Generator | None) -> Tensor:
        return outputs + self.scale * _noise(outputs, generator)

    def expected(self, outputs: Tensor, axes: int) -> Iterator[Tensor]:
        return _one_by_one(torch.full_like(outputs, 1 / self.scale), axes)


def signals(
    likelihood: Likelihood,
    kind: Labels | Score | Norm | Signals,
    outputs: Tensor,
    targets: Tensor | None,
    *,
    axes: int,
    generator: Generators = None,
) -> Iterator[Tensor]:
    """Yield what a score, or a Fisher's labels, send back from the outputs: `[..., n, *outputs]` each.

    Args:
        likelihood: what the outputs mean.
        kind: a `Score`, the `Norm`, the `Labels` of a Fisher, or "normal" noise; only "expected" yields more than one.
        outputs: `[..., n, *outputs]`.
        targets: the data's labels; "sampled", "expected", "average", "squared-norm" and "normal" do without.
        axes: how many leading axes number replicas and samples.
        generator: draws the labels of "sampled" and the noise of "normal"; one for all, or one for each replica.
    """
    known = list(dict.fromkeys((*get_args(Labels), *get_args(Score), *get_args(Norm), *get_args(Signals))))
    if kind not in known:
        raise ValueError(f"Expected one of {known}, got {kind!r}.")
    outputs = outputs.detach()
    likelihood.check(outputs, targets)
    counted = outputs.new_ones(()) if targets is None else likelihood.counted(outputs, targets)
    if kind == "expected":
        yield from (s * counted for s in likelihood.expected(outputs, axes))
    elif kind == "average":
        yield likelihood.average(outputs, axes) * counted
    elif kind == "squared-norm":
        yield 2 * outputs * counted
    elif kind == "normal":
        yield _drawn(_noise, outputs, generator) * counted
    elif kind == "sampled":
        yield likelihood.observed(outputs, _drawn(likelihood.sample, outputs, generator)) * counted
    elif targets is None:
        raise ValueError(f"Expected targets for {kind!r}, got None. Return them from predict, or use 'sampled' labels.")
    elif kind == "ground-truth":
        yield likelihood.ground_truth(outputs, targets)
    else:
        yield likelihood.observed(outputs, targets)


def draws_labels(kind: Labels | Signals) -> bool:
    """Whether something is drawn for each sample."""
    return kind in ("sampled", "normal")


def _drawn(draw: Callable[[Tensor, torch.Generator | None], Tensor], outputs: Tensor, generator: Generators) -> Tensor:
    """Draw for all outputs at once, or for each replica with a generator of its own."""
    if generator is None or isinstance(generator, torch.Generator):
        return draw(outputs, generator)
    if isinstance(generator, SharedDraws):
        return generator.draw(draw, outputs)
    near = _near(outputs, generator[0])
    drawn = [draw(own, each) for own, each in zip(near, generator, strict=True)]
    return torch.stack(drawn).to(outputs.device)


def _noise(outputs: Tensor, generator: torch.Generator | None) -> Tensor:
    """Standard normal numbers: by their quantiles, which do not depend on how the samples were cut into batches."""
    near = _near(outputs, generator)
    u = torch.rand(outputs.shape, dtype=torch.float64, device=near.device, generator=generator)
    noise: Tensor = torch.special.ndtri(u.clamp(min=2.0**-53))
    return noise.to(outputs)


def _check_shape(outputs: Tensor, targets: Tensor | None) -> None:
    if targets is not None and targets.shape != outputs.shape:
        raise ValueError(f"Expected targets of the outputs' shape {tuple(outputs.shape)}, got {tuple(targets.shape)}.")


def _near(outputs: Tensor, generator: torch.Generator | None) -> Tensor:
    """Bring outputs to the device that the generator draws on."""
    return outputs if generator is None else outputs.to(generator.device)


def _cells(shape: Sequence[int]) -> Iterator[tuple[int, ...]]:
    return product(*map(range, shape))


def _one_by_one(values: Tensor, axes: int) -> Iterator[Tensor]:
    """Yield the outputs' values one at a time, zero elsewhere."""
    for cell in _cells(values.shape[axes:]):
        yield _only(values, axes, cell)


def _only(values: Tensor, axes: int, cell: Sequence[int]) -> Tensor:
    """Keep the values at one place of the output axes, zero elsewhere."""
    mask = torch.zeros(values.shape[axes : axes + len(cell)], dtype=values.dtype, device=values.device)
    mask[tuple(cell)] = 1
    return values * mask.reshape(*mask.shape, *[1] * (values.dim() - axes - len(cell)))
