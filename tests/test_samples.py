"""Samples that are kept: drawn from any batches, a uniform sample of all that was seen, saved and taken up again."""

from collections import namedtuple
from dataclasses import replace

import pytest
import torch
from torch import nn

import fopng
from fopng.core.likelihood import Bernoulli, Categorical, Gaussian
from fopng.core.tree import from_plain, to_plain
from fopng.curvature.sampling import LoaderStream
from fopng.gradients.per_sample import PerSampleGradients
from fopng.memory.old_answers import WholeAnswers
from fopng.memory.replay_draws import BatchSamples, Learnt, Sampled, draw_samples, take_rows
from fopng.memory.replay_samples import Drawn, SampleBlock, SampleMemory, follow_model
from fopng.optim.replay_base import ReplayRunning
from fopng.optim.replay_base import seeded as with_key


def seeded(seed):
    return torch.Generator().manual_seed(seed)


def numbered(count, start=0, batch=3):
    """Batches `(x, y)` whose inputs are the samples' numbers."""
    rows = torch.arange(start, start + count)
    return [(part[:, None].double(), part % 2) for part in rows.split(batch)]


def drawn_numbers(sampled):
    return [int(x) for part in sampled for x in part.batch[0]]


class Sampling:
    """A task of numbers, as a memory wants it."""

    def __init__(self, seed):
        self.generator = seeded(seed)

    def key(self):
        return torch.randint(2**32, (), generator=self.generator)


class TestDrawing:
    @pytest.mark.parametrize("count", [1, 4, 10, 99])
    def test_without_replacement_in_the_order_of_their_ranks(self, count):
        [found] = draw_samples(numbered(10), 10, count, seeded(0))
        assert len(set(drawn_numbers([found]))) == min(count, 10)
        assert torch.equal(found.ranks, found.ranks.sort(descending=True).values)
        assert torch.equal(found.batch[1], found.batch[0][:, 0].long() % 2)

    def test_every_sample_is_as_likely(self):
        seen = torch.zeros(10)
        for seed in range(1000):
            seen[drawn_numbers(draw_samples(numbered(10), 10, 3, seeded(seed)))] += 1
        torch.testing.assert_close(seen / 1000, torch.full((10,), 0.3), rtol=0, atol=0.06)

    def test_batches_that_cannot_be_joined_stay_apart(self):
        batches = [
            {"x": torch.zeros(2, length), "lang": lang} for length, lang in [(3, "en"), (5, "en"), (3, "en"), (3, "de")]
        ]
        found = draw_samples(batches, 8, 8, seeded(0))
        assert sorted((tuple(part.batch["x"].shape), part.batch["lang"]) for part in found) == [
            ((2, 3), "de"),
            ((2, 5), "en"),
            ((4, 3), "en"),
        ]

    def test_what_could_not_be_saved_is_told(self):
        Pair = namedtuple("Pair", ["x", "y"])
        with pytest.raises(TypeError, match="got a Pair. Let the loader give one of those"):
            draw_samples([Pair(*batch) for batch in numbered(4)], 4, 2, seeded(0))

    def test_samples_are_copies(self):
        batches = numbered(6)
        [found] = draw_samples(batches, 6, 6, seeded(0))
        batches[0][0].fill_(-1)
        assert sorted(drawn_numbers([found])) == list(range(6))

    def test_rows_of_replicas(self):
        x = torch.arange(24).reshape(2, 4, 3)
        taken, text = take_rows((x, "text"), torch.tensor([[3, 0], [1, 1]]))
        assert text == "text"
        assert torch.equal(taken, torch.stack([x[0, [3, 0]], x[1, [1, 1]]]))


class TestReservoir:
    def test_every_sample_ever_seen_is_as_likely(self):
        """Three tasks of different sizes, in blocks of their own or together."""
        for together in (False, True):
            seen = torch.zeros(18)
            for seed in range(600):
                memory, generator = SampleMemory(), seeded(seed)
                for task, (start, count) in enumerate([(0, 4), (4, 12), (16, 2)]):
                    drawn = draw_samples(numbered(count, start), count, 6, generator)
                    memory = memory.added([SampleBlock.of(part, task) for part in drawn], together=together).limited(6)
                kept = [int(x) for block in memory.blocks for x in block.batch[0]]
                assert len(kept) == len(set(kept)) == 6
                assert len(memory.blocks) == 1 or not together
                seen[kept] += 1
            torch.testing.assert_close(seen / 600, torch.full((18,), 1 / 3), rtol=0, atol=0.09)

    @pytest.mark.parametrize("joined", [False, True])
    def test_replicas_keep_what_they_would_alone(self, joined):
        """Their tasks leave different numbers of samples; what fills up never counts, also where blocks are joined later."""
        tasks = [(0, 9), (9, 5), (14, 8)]
        alone = [[], []]
        together = SampleMemory()
        for task, (start, count) in enumerate(tasks):
            parts = [draw_samples(numbered(count, start), count, 7, seeded(10 * task + r))[0] for r in range(2)]
            for r, part in enumerate(parts):
                alone[r].append(part)
            stacked = Sampled(
                tuple(map(torch.stack, zip(*(part.batch for part in parts), strict=True))),
                torch.stack([p.ranks for p in parts]),
            )
            together = together.added([SampleBlock.of(stacked, task)], together=joined and task == 2).limited(7)
        for r in range(2):
            single = SampleMemory()
            for task, part in enumerate(alone[r]):
                single = single.added([SampleBlock.of(part, task)], together=joined and task == 2).limited(7)
            expected = {block.task: block.batch[0].flatten().tolist() for block in single.blocks}
            found = {b.task: b.batch[0][r, : b.members[r]].flatten().tolist() for b in together.blocks if b.members[r]}
            assert found == expected


class TestDraws:
    def memory(self, sizes):
        """Samples of tasks of these sizes, and what decides the first draw."""
        memory, start = SampleMemory(learnt=tuple(map(Learnt, range(len(sizes))))), 0
        for task, count in enumerate(sizes):
            drawn = draw_samples(numbered(count, start), count, count, seeded(task))
            memory = memory.added([SampleBlock.of(part, task) for part in drawn], together=False)
            start += count
        return memory, with_key(ReplayRunning(), Sampling(3), torch.device("cpu")).counters

    @pytest.mark.parametrize("sizes", [[12], [3, 9], [1, 2, 9]])
    def test_on_average_every_sample_counts_the_same(self, sizes):
        memory, counters = self.memory(sizes)
        weight = torch.zeros(12, dtype=torch.float64)
        for _ in range(3000):
            drawn, counters = memory.draw(counters, 4)
            assert float(sum(part.shares.sum() for part in drawn)) == pytest.approx(1.0)
            for part in drawn:
                weight[part.batch[0].flatten().long()] += part.shares
        torch.testing.assert_close(weight / 3000, torch.full((12,), 1 / 12, dtype=torch.float64), rtol=0, atol=0.012)

    def test_all_of_each_task(self):
        memory, counters = self.memory([3, 9])
        drawn, _ = memory.draw_by_task(counters, None)
        assert [sorted(int(x) for part in task for x in part.batch[0]) for task in drawn] == [
            [0, 1, 2],
            list(range(3, 12)),
        ]
        assert [float(part.shares[0]) for [part] in drawn] == pytest.approx([1 / 3, 1 / 9])

    def test_another_draw_each_time_and_the_same_from_the_same_state(self):
        memory, counters = self.memory([12])
        [first], counters = memory.draw(counters, 5)
        other, saved = from_plain(to_plain((memory, counters)))
        [second], [again] = memory.draw(counters, 5)[0], other.draw(saved, 5)[0]
        assert not torch.equal(first.batch[0], second.batch[0])
        assert torch.equal(second.batch[0], again.batch[0])

    def test_samples_follow_the_models_precision_where_they_had_it(self):
        batch = (torch.zeros(3, 2, dtype=torch.float64), torch.zeros(3), torch.zeros(3, dtype=torch.int64))
        memory = SampleMemory((SampleBlock.of(Sampled(batch, torch.arange(3).flip(0)), 0),))
        memory = follow_model(memory, torch.empty(0, dtype=torch.float64), torch.empty(0, dtype=torch.bfloat16))
        assert [t.dtype for t in memory.blocks[0].batch] == [torch.bfloat16, torch.float32, torch.int64]


LOSSES = {
    "classes": (Categorical(), lambda z, y: nn.functional.cross_entropy(z, y), lambda: torch.randint(3, (6,)), (6, 3)),
    "tokens": (
        Categorical(ignore_index=2),
        # each sample's mean over the positions that count
        lambda z, y: (
            sum(nn.functional.cross_entropy(own, to, ignore_index=2) for own, to in zip(z, y, strict=True)) / len(z)
        ),
        lambda: torch.cat([torch.randint(2, (6, 2)), torch.randint(3, (6, 2))], 1),
        (6, 4, 3),
    ),
    "labels": (
        Bernoulli(),
        lambda z, y: nn.functional.binary_cross_entropy_with_logits(z, y),
        lambda: torch.randint(2, (6, 3)).double(),
        (6, 3),
    ),
    "numbers": (
        Gaussian(0.5),
        lambda z, y: nn.functional.mse_loss(z, y) / (2 * 0.25),
        lambda: torch.randn(6, 3, dtype=torch.float64),
        (6, 3),
    ),
}


class TestSignal:
    @pytest.mark.parametrize("kind", LOSSES)
    def test_the_usual_mean_loss(self, kind):
        likelihood, loss, targets, shape = LOSSES[kind]
        z, y = torch.randn(shape, dtype=torch.float64, requires_grad=True), targets()
        drawn = Drawn(None, torch.full((6,), 1 / 6), None)
        [expected] = torch.autograd.grad(loss(z, y), z)
        torch.testing.assert_close(drawn.signal(likelihood, z.detach(), y), expected, rtol=1e-6, atol=1e-9)

    @pytest.mark.parametrize("temperature", [1.0, 2.0])
    def test_distillation(self, temperature):
        """Li and Hoiem, eq. 2: the cross-entropy of softened probabilities."""
        z, old = (torch.randn(6, 3, dtype=torch.float64) for _ in range(2))
        z.requires_grad_()
        softened = (old / temperature).softmax(-1)
        loss = -(softened * (z / temperature).log_softmax(-1)).sum(-1).mean()
        [expected] = torch.autograd.grad(loss, z)
        drawn = Drawn(None, torch.full((6,), 1 / 6), WholeAnswers(old), temperature=temperature)
        found = drawn.signal(Categorical(), z.detach(), None)
        torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-9)

    @pytest.mark.parametrize("likelihood", [Categorical(), Bernoulli(), Gaussian(0.5)])
    def test_the_old_answer_is_where_distillation_rests(self, likelihood):
        old = torch.randn(6, 3, dtype=torch.float64)
        drawn = Drawn(None, torch.full((6,), 1 / 6), WholeAnswers(old), temperature=2.0)
        assert not drawn.signal(likelihood, old, None).any()
        assert (drawn.signal(likelihood, old + torch.eye(3).repeat(2, 1), None) * torch.eye(3).repeat(2, 1)).sum() > 0


class ByTask(fopng.PredictTask):
    def __call__(self, model, batch):
        return model(batch[0]) * (1 if model.shared else batch[2]), batch[1]

    def task_of(self, batch):
        return batch[2]

    def as_task(self, batch, task):
        return (*batch[:2], task)


@pytest.mark.parametrize("shared", [True, False])
def test_whether_tasks_are_answered_alike_is_seen(shared):
    model = nn.Linear(1, 2).double()
    model.shared = shared
    batches = [(*batch, 4) for batch in numbered(9)]
    stream = LoaderStream(batches, seeded(0))
    sampling = BatchSamples(PerSampleGradients(model, predict=ByTask()), stream)
    assert sampling.learnt().name == 4
    assert sampling.learnt().path == ("weight", "bias")
    assert sampling.answered_alike(sampling.draw(5)[0].batch, [3, 4]) is shared
    plain = BatchSamples(PerSampleGradients(model, predict=lambda m, b: (m(b[0]), b[1])), stream)
    assert not plain.answered_alike(batches[0], [None, None])
    assert replace(plain, source=PerSampleGradients(model)).answered_alike(batches[0], [None, None])
