"""What a model answered, kept for later: as it was, or by its leading words where a vocabulary is large."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias, final

import torch
from torch import Tensor
from torch.nn.functional import pad

from fopng.core.likelihood import Categorical, Likelihood
from fopng.core.tree import map_tree, node, tensors_in

WORDS = 64
"""Of a distribution over more words the leading ones are kept alone."""

LEADING = 32
"""So many of them."""

SMALLEST = 1e-6
"""The others are at least as likely, together."""

STEPS = 1000
"""To a nat: log-probabilities are kept as whole numbers."""


@node
@final
@dataclass(frozen=True, eq=False)
class LeadingAnswers:
    """Distributions over many words: the likeliest as they were, of the others how likely they were together.

    Args:
        logs: log-probabilities of the likeliest, int16 in 1/1000 nats, `[..., n, t, k]`.
        places: which words they are, int32.
    """

    logs: Tensor
    places: Tensor

    @classmethod
    def of(cls, outputs: Tensor) -> "LeadingAnswers":
        """From logits, `[..., n, t, words]`."""
        logs, places = outputs.float().log_softmax(-1).topk(LEADING)
        return cls((logs * STEPS).round().clamp(min=-(2**15)).to(torch.int16), places.int())

    def rows(self, axis: int, index: Tensor) -> "LeadingAnswers":
        """Those to some of the samples."""
        return map_tree(lambda own: own.index_select(axis, index), self)

    def beside(self, outputs: Tensor) -> Tensor:
        """Log-probabilities to be compared with outputs: the others share theirs as they do in these.

        Then the divergence is that of the distributions over the likeliest and "another", and so is its gradient.
        """
        logs, places, now = self.logs.to(outputs) / STEPS, self.places.long(), outputs.log_softmax(-1)
        left, others = (
            torch.log1p(-own.exp().sum(-1, keepdim=True).clamp(max=1 - SMALLEST))
            for own in (logs, now.gather(-1, places))
        )
        return (now + left - others).scatter(-1, places, logs)


@node
@final
@dataclass(frozen=True, eq=False)
class WholeAnswers:
    """Answers as they were, `[..., n, *outputs]`."""

    outputs: Tensor

    def rows(self, axis: int, index: Tensor) -> "WholeAnswers":
        """Those to some of the samples."""
        return WholeAnswers(self.outputs.index_select(axis, index))

    def beside(self, outputs: Tensor) -> Tensor:
        """Answers to be compared with outputs; a class that has come since was impossible."""
        answers = self.outputs.to(outputs)
        missing = outputs.shape[-1] - answers.shape[-1] if outputs.dim() == answers.dim() else 0
        return pad(answers, (0, missing), value=-torch.inf) if missing > 0 else answers


OldAnswers: TypeAlias = LeadingAnswers | WholeAnswers
"""What a model answered."""


def keep_answers(likelihood: Likelihood, outputs: Iterable[Tensor], axis: int) -> OldAnswers:
    """Answers to parts of some samples, as they are kept; what is given up is freed part by part.

    Args:
        likelihood: what they mean.
        outputs: `[..., n, *outputs]` each.
        axis: of the samples.
    """

    def shortened(part: Tensor) -> OldAnswers:
        many = part.dim() > axis + 2 and part.shape[-1] > WORDS
        return LeadingAnswers.of(part) if many and isinstance(likelihood, Categorical) else WholeAnswers(part)

    parts = [shortened(part) for part in outputs]
    columns = zip(*map(tensors_in, parts), strict=True)
    joined = iter([torch.cat(column, axis) for column in columns])
    return map_tree(lambda _: next(joined), parts[0])
