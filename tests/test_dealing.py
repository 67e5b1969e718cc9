"""Samples over several processes stand where one process would have them."""

from typing import Any

import pytest
import torch
from torch import Tensor

from fopng.core.likelihood import Bernoulli, Categorical, Gaussian
from fopng.parallel.collectives import SINGLE_PROCESS, Communicator
from fopng.parallel.sharded_sampling import ShardedSampler, pick, sample_positions


class Told(Communicator):
    """One of some processes, that is told what the others would say."""

    def __init__(self, number: int, answers: list[Any]) -> None:
        self.rank, self.count, self.answers = number, len(answers), answers

    def gather(self, value: Any) -> list[Any]:
        assert self.answers[self.rank] == value
        return self.answers

    def sum(self, x: Tensor) -> Tensor:
        raise NotImplementedError

    broadcast = sum_named = sum


@pytest.mark.parametrize("shards", [[4, 4, 4], [3, 0, 5], [1], [2, 3], [0, 1]], ids=str)
def test_samples_stand_in_the_order_from_which_they_are_dealt(shards):
    order = sorted((row, process) for process, n in enumerate(shards) for row in range(n))
    for process, n in enumerate(shards):
        own, total = sample_positions(n, Told(process, shards))
        assert total == sum(shards)
        assert own.tolist() == [k for k, (_, who) in enumerate(order) if who == process]


@pytest.mark.parametrize("count", [None, 5])
@pytest.mark.parametrize("likelihood", [Categorical(), Bernoulli(), Gaussian()], ids=lambda x: type(x).__name__)
def test_each_sample_is_given_the_label_that_it_would_have_in_one_process(likelihood, count):
    x, shards = torch.randn(9, 4), [4, 5]
    answers = {}
    alone = ShardedSampler(torch.Generator().manual_seed(3), SINGLE_PROCESS, labels=True)
    for batch in alone.choose([x[:2], x[2:]], count, 0):
        for row, label in zip(batch, alone.draw(likelihood.sample, batch), strict=True):
            answers[tuple(row.tolist())] = label
    found = 0
    order = sorted((row, process) for process, n in enumerate(shards) for row in range(n))
    for process in range(2):
        own = x[[k for k, (_, who) in enumerate(order) if who == process]]
        sampler = ShardedSampler(torch.Generator().manual_seed(3), Told(process, shards), labels=True)
        for batch in sampler.choose([own[:3], own[3:]], count, 0):
            for row, label in zip(batch, sampler.draw(likelihood.sample, batch), strict=True):
                torch.testing.assert_close(label, answers[tuple(row.tolist())], rtol=0, atol=0)
                found += 1
    assert found == len(answers) == (9 if count is None else count)


def test_rows_are_picked_across_batches():
    batches = [torch.arange(3), torch.arange(3, 4), torch.arange(4, 9)]
    assert torch.cat(list(pick(batches, torch.tensor([0, 2, 3, 8])))).tolist() == [0, 2, 3, 8]


def test_no_samples_are_too_few():
    with pytest.raises(ValueError, match="at least 1, got 0"):
        list(ShardedSampler(None, SINGLE_PROCESS, labels=False).choose([torch.zeros(2)], 0, 0))
