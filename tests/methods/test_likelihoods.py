"""The life cycle with other outputs than classes, each against autograd one sample at a time."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import fopng
from flat import flat as flat_vector
from methods.worlds import METHODS, PROJECTED, flat
from oracle import diagonal_fisher, sample_gradients


class Words(nn.Module):
    """A next-token model in small: it answers `[n, t, words]`."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.mix, self.out = nn.Embedding(6, 4), nn.Linear(4, 4), nn.Linear(4, 6)

    def forward(self, x: Tensor) -> Tensor:
        answer: Tensor = self.out(torch.cumsum(self.mix(self.embed(x)).tanh(), 1))
        return answer


def token_log_likelihood(outputs: Tensor, targets: Tensor) -> Tensor:
    return -F.cross_entropy(outputs.flatten(0, 1), targets.flatten(), ignore_index=5, reduction="sum")


def tokens():
    batches = []
    for _ in range(2):
        text = torch.randint(5, (4, 6))
        text[1, 4:] = 5  # padding
        batches.append({"text": text, "lang": "en"})
    return (
        Words().double(),
        batches,
        lambda model, batch: (model(batch["text"][:, :-1]), batch["text"][:, 1:]),
        fopng.Categorical(ignore_index=5),
        token_log_likelihood,
        # the logits of what follows, positions left out excepted
        lambda out, y: (out.gather(-1, y.unsqueeze(-1)).squeeze(-1) * (y != 5)).sum(),
    )


def several_labels():
    batches = [(torch.randn(4, 5).double(), torch.randint(2, (4, 3)).double()) for _ in range(2)]
    return (
        nn.Linear(5, 3).double(),
        batches,
        lambda model, batch: (model(batch[0]), batch[1]),
        fopng.Bernoulli(),
        lambda out, y: -F.binary_cross_entropy_with_logits(out, y, reduction="sum"),
        lambda out, y: ((2 * y - 1) * out).sum(),
    )


def regression():
    batches = [{"x": torch.randn(4, 5).double(), "y": torch.randn(4, 2).double()} for _ in range(2)]
    return (
        nn.Sequential(nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 2)).double(),
        batches,
        lambda model, batch: (model(batch["x"]), batch["y"]),
        fopng.Gaussian(scale=0.5),
        lambda out, y: torch.distributions.Normal(out, 0.5).log_prob(y).sum(),
        lambda out, y: out.sum(),
    )


WORLDS = {build.__name__: build for build in (tokens, several_labels, regression)}


@pytest.mark.parametrize("kind", WORLDS)
@pytest.mark.parametrize("name", METHODS)
def test_every_method_lives_with_every_likelihood(name, kind):
    model, batches, predict, likelihood, log_likelihood, _ = WORLDS[kind]()
    small = {"gradients_per_task": 3} if name in PROJECTED else {}
    optimizer = METHODS[name](model, 1e-2, predict=predict, likelihood=likelihood, **small)
    start = flat(model)
    for task in range(2):
        optimizer.begin_task(task)
        optimizer.refresh(batches)
        for batch in batches:
            optimizer.zero_grad()
            (-log_likelihood(*predict(model, batch)) / 4).backward()
            optimizer.step()
        optimizer.end_task(batches)
    assert flat(model).isfinite().all()
    assert not torch.equal(flat(model), start)


@pytest.mark.parametrize("kind", WORLDS)
def test_what_is_kept_is_autograds_one_sample_at_a_time(kind):
    model, batches, predict, likelihood, log_likelihood, ground_truth = WORLDS[kind]()
    optimizer = fopng.FOPNG(model, 1e-2, predict=predict, likelihood=likelihood)
    optimizer.begin_task(0)
    optimizer.end_task(batches)
    rows, stored = (
        torch.cat([sample_gradients(model, batch, 4, score, predict) for batch in batches])
        for score in (log_likelihood, ground_truth)
    )
    state, shapes = optimizer.pipeline.state, optimizer.layout.shapes
    found = flat_vector(state.fisher_old.values, shapes)
    torch.testing.assert_close(found, diagonal_fisher(rows), rtol=1e-10, atol=1e-14)
    torch.testing.assert_close(flat_vector(state.memory.rows(), shapes), stored, rtol=1e-10, atol=1e-14)
