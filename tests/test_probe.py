"""What stands for old inputs: moments that agree with the data's, texts in the form of the batches, and what fits what."""

import pytest
import torch
from torch import nn

import fopng
from fopng.core.keyed_random import normal, signs, uniform
from fopng.core.tree import bytes_of, from_plain, to_plain
from fopng.curvature.sampling import LoaderStream
from fopng.gradients.per_sample import PerSampleGradients
from fopng.memory.gaussians import DRAWS, FIRST
from fopng.memory.old_answers import LeadingAnswers, keep_answers
from fopng.memory.probe import KeptInputs, Prober, check_kind
from fopng.memory.replay_draws import BatchSamples


def prober(model, batches, kind=None, predict=None, seed=0):
    source = PerSampleGradients(model) if predict is None else PerSampleGradients(model, predict=predict)
    stream = LoaderStream(batches, torch.Generator().manual_seed(seed))
    return Prober(source, stream, BatchSamples(source, stream), kind)


def classes(n=3000, width=12):
    """Three classes, each with a mean and a covariance of its own."""
    torch.manual_seed(1)
    y = torch.randint(3, (n,))
    mean, mix = 3 * torch.randn(3, width), torch.randn(3, width, width) / 2
    x = mean[y] + (torch.randn(n, 1, width) @ mix[y]).squeeze(1)
    return x, y, mean, mix


class TestGaussians:
    def test_draws_of_a_class_have_its_mean_and_covariance(self):
        x, y, mean, mix = classes()
        inputs = prober(nn.Linear(12, 3), [(x, y)]).probe().inputs
        drawn, labels = inputs.batch(torch.arange(FIRST))
        for c in range(3):
            own = drawn[labels == c]
            assert len(own) > FIRST // 6
            assert (own.mean(0) - mean[c]).norm() < 0.25 * mean[c].norm()
            expected, found = mix[c].T @ mix[c], own.T.cov()
            assert (found - expected).norm() < 0.5 * expected.norm()

    def test_later_draws_are_half_of_the_one_of_all(self):
        x, y, *_ = classes()
        inputs = prober(nn.Linear(12, 3), [(x, y)]).probe().inputs
        drawn, _ = inputs.batch(torch.arange(FIRST, DRAWS))
        expected = x.T.cov()
        assert (drawn.T.cov() - expected).norm() < 0.3 * expected.norm()

    def test_what_the_factor_leaves_is_the_rest_of_each_variance(self):
        torch.manual_seed(0)
        x = torch.randn(2000, 300) * torch.linspace(0.5, 2, 300)
        inputs = prober(nn.Linear(300, 2), [(x, torch.zeros(2000, dtype=torch.int64))]).probe().inputs
        assert inputs.factors.shape[-2] == 64
        drawn = inputs.batch(torch.arange(DRAWS))[0]
        assert torch.allclose(drawn.var(0).sum(), x.var(0).sum(), rtol=0.05)

    def test_classes_that_are_absent_take_no_room(self):
        x, y, *_ = classes()
        there = y < 2
        small = prober(nn.Linear(12, 9), [(x[there], y[there])]).probe().inputs
        assert small.means.shape[-2] == 3  # two classes, and all
        assert set(small.batch(torch.arange(DRAWS))[1].tolist()) == {0, 1}

    def test_draws_are_the_same_whenever_they_are_asked_for(self):
        x, y, *_ = classes()
        inputs = prober(nn.Linear(12, 3), [(x, y)]).probe().inputs
        again = from_plain(to_plain(inputs))
        rows = torch.tensor([5, 900, 17])
        for one, other in zip(inputs.batch(rows), again.batch(rows), strict=True):
            assert torch.equal(one, other)
        # whether they are held or not
        assert torch.allclose(inputs._drawn(rows), inputs.batch(rows)[0], atol=1e-5)

    def test_no_sample_is_kept(self):
        """Every number that is kept depends on many samples."""
        x, y, *_ = classes(n=400, width=30)
        inputs = prober(nn.Linear(30, 3), [(x, y)]).probe().inputs
        rows = torch.cat([inputs.means, inputs.factors.flatten(0, 1), inputs.means.new_zeros(1, 30)])
        nearest = torch.cdist(x, rows).amin(1)
        assert bool((nearest > 1e-3).all())
        assert not inputs.form[0].any()

    def test_regression_and_several_tensors_of_numbers(self):
        torch.manual_seed(0)
        x, y = {"a": torch.randn(50, 4), "b": torch.randn(50, 2, 3)}, torch.randn(50, 1)

        class Two(nn.Module):
            def __init__(self):
                super().__init__()
                self.layer = nn.Linear(10, 1)

            def forward(self, x):
                return self.layer(torch.cat([x["a"], x["b"].flatten(1)], 1))

        source = PerSampleGradients(Two(), likelihood=fopng.Gaussian())
        stream = LoaderStream([(x, y)], torch.Generator())
        probe = Prober(source, stream, BatchSamples(source, stream)).probe()
        (drawn, _) = probe.inputs.batch(torch.arange(7))
        assert drawn["a"].shape == (7, 4)
        assert drawn["b"].shape == (7, 2, 3)
        assert probe.answers.outputs.shape == (DRAWS, 1)

    def test_half_precision_inputs_stay_so(self):
        x, y, *_ = classes(n=200)
        probe = prober(nn.Linear(12, 3).bfloat16(), [(x.bfloat16(), y)]).probe()
        assert probe.inputs.batch(torch.arange(3))[0].dtype == torch.bfloat16


class Bigram(nn.Module):
    """Says which token comes next, by the one before."""

    def __init__(self, words=5):
        super().__init__()
        self.next = nn.Embedding(words, words)
        with torch.no_grad():
            # each token is followed by the one after it
            self.next.weight.copy_(30 * torch.eye(words).roll(1, 1))

    def forward(self, tokens):
        return self.next(tokens)


class TestTexts:
    def test_a_language_model_writes_what_it_would_say(self):
        tokens = torch.randint(5, (8, 6))
        probe = prober(Bigram(), [(tokens, tokens.roll(-1, 1))]).probe()
        assert isinstance(probe.inputs, KeptInputs)
        written, targets = probe.inputs.samples
        assert torch.equal(written[:, 1:], (written[:, :-1] + 1) % 5)
        assert torch.equal(targets, (written + 1) % 5)

    def test_as_transformers_batches_have_them(self):
        tokens = torch.randint(5, (8, 6))
        mask = torch.ones_like(tokens)
        mask[3, 4:] = 0
        batch = {"input_ids": tokens, "attention_mask": mask, "labels": tokens.where(mask == 1, -100)}

        def ask(model, batch):
            return model(batch["input_ids"])[:, :-1], batch["labels"][:, 1:]

        written = prober(Bigram(), [batch], predict=ask).probe().inputs.samples
        assert torch.equal(written["input_ids"][:, 1:], (written["input_ids"][:, :-1] + 1) % 5)
        assert torch.equal(written["labels"], written["input_ids"])
        assert bool((written["attention_mask"] == 1).all())

    def test_the_same_seed_writes_the_same(self):
        tokens = torch.randint(5, (8, 6))
        model = Bigram()
        with torch.no_grad():
            model.next.weight.zero_()
        first, again = (prober(model, [(tokens, tokens.roll(-1, 1))]).probe().inputs.samples[0] for _ in range(2))
        assert torch.equal(first, again)


class TestOtherKinds:
    def test_so_many_samples_are_kept(self):
        x, y, *_ = classes(n=50)
        kept = prober(nn.Linear(12, 3), [(x, y)], kind=20).probe().inputs.samples
        assert len(kept[0]) == 20
        assert all(bool((x == row).all(1).any()) for row in kept[0])

    def test_a_loader_and_a_function(self):
        x, y, *_ = classes(n=50)
        other = [(torch.zeros(3, 12), torch.zeros(3, dtype=torch.int64))] * 2
        assert prober(nn.Linear(12, 3), [(x, y)], kind=other).probe().inputs.count == 6
        function = prober(nn.Linear(12, 3), [(x, y)], kind=lambda n: (torch.zeros(n, 12), torch.zeros(n).long()))
        assert function.probe().inputs.count == DRAWS

    def test_inputs_that_fit_nothing_say_what_to_give(self):
        tokens = torch.randint(5, (8, 6))
        model = nn.Sequential(nn.Embedding(5, 4), nn.Flatten(), nn.Linear(24, 2))
        with pytest.raises(ValueError, match="int64 .* Pass probe=.*or pass tolerance=None and rehearse=0"):
            prober(model, [(tokens, torch.randint(2, (8,)))]).check()

    def test_a_word_that_is_none_of_them(self):
        with pytest.raises(ValueError, match="Expected probe to be one of 'moments', 'generated'"):
            check_kind("moment")
        with pytest.raises(ValueError, match="a number of samples of at least 2"):
            check_kind(True)

    def test_what_is_measured_is_never_rehearsed(self):
        x, y, *_ = classes(n=60)
        for kind in (None, 40):
            probe = prober(nn.Linear(12, 3), [(x, y)], kind=kind).probe()
            measured = {tuple(row) for turn in range(80) for row in probe.to_measure(turn, 13).batch[0].tolist()}
            rehearsed = {tuple(row) for turn in range(80) for row in probe.to_rehearse(turn, 13).batch[0].tolist()}
            assert not measured & rehearsed
            assert len(measured) + len(rehearsed) == probe.inputs.count

    def test_bytes(self):
        x, y, *_ = classes(n=60)
        probe = prober(nn.Linear(12, 3), [(x, y)]).probe()
        assert bytes_of(probe) < 4 * (4 * 12 * 66 + DRAWS * 3 + 100)


class TestAnswers:
    def test_the_leading_words_stay_and_the_rest_is_shared(self):
        torch.manual_seed(0)
        outputs = 4 * torch.randn(6, 5, 300)
        kept = keep_answers(fopng.Categorical(), outputs.split(2), 0)
        assert isinstance(kept, LeadingAnswers)
        assert bytes_of(kept) < bytes_of(outputs) / 6
        old, now = (10 * outputs).softmax(-1), 4 * torch.randn(6, 5, 300)
        kept = keep_answers(fopng.Categorical(), (10 * outputs).split(2), 0)
        beside = kept.beside(now).softmax(-1)
        top = old.topk(32).indices
        assert torch.allclose(beside.gather(-1, top), old.gather(-1, top), rtol=2e-3, atol=1e-6)
        assert torch.allclose(beside.sum(-1), torch.ones(6, 5), atol=1e-4)

    def test_a_model_that_has_not_moved_has_lost_nothing(self):
        torch.manual_seed(0)
        outputs = torch.randn(6, 5, 300)
        kept, likelihood = keep_answers(fopng.Categorical(), [outputs], 0), fopng.Categorical()
        assert likelihood.divergence(outputs, kept.beside(outputs), 1).abs().max() < 1e-5

    def test_the_divergence_is_that_over_the_leading_words_and_another(self):
        torch.manual_seed(0)
        old, now = 2 * torch.randn(4, 3, 100), 2 * torch.randn(4, 3, 100, dtype=torch.float64).requires_grad_()
        kept, likelihood = keep_answers(fopng.Categorical(), [old], 0), fopng.Categorical()
        top = old.topk(32).indices
        p, q = (each.double().softmax(-1).gather(-1, top) for each in (old, now))
        p, q = (torch.cat([each, 1 - each.sum(-1, keepdim=True)], -1) for each in (p, q))
        expected = (p * (p / q).log()).sum(-1)
        found = likelihood.divergence(now, kept.beside(now.detach()), 1)
        assert torch.allclose(found, expected.mean(-1), atol=1e-3)
        [gradient] = torch.autograd.grad(expected.sum(), now)
        assert torch.allclose(-likelihood.distilled(now.detach(), kept.beside(now.detach()), 1.0), gradient, atol=1e-3)

    def test_answers_over_few_words_and_of_classes_stay_as_they_are(self):
        for outputs in (torch.randn(6, 5, 30), torch.randn(6, 300)):
            kept = keep_answers(fopng.Categorical(), outputs.split(4), 0)
            assert torch.equal(kept.rows(0, torch.tensor([3])).beside(outputs[3:4]), outputs[3:4])


class TestKeyedRandom:
    def test_they_are_what_they_are_called(self):
        key = torch.tensor(7)
        u, z = uniform(key, torch.arange(2000), 5), normal(key, torch.arange(2000), 5)
        assert u.min() > 0
        assert u.max() < 1
        assert abs(u.mean() - 0.5) < 0.01
        assert abs(z.mean()) < 0.03
        assert abs(z.std() - 1) < 0.03
        assert (z.T.corrcoef() - torch.eye(5)).abs().max() < 0.08
        flipped = signs(key, torch.arange(2000), torch.ones(2000, 5))
        assert set(flipped.unique().tolist()) == {-1.0, 1.0}
        assert abs(flipped.mean()) < 0.05

    def test_replicas_have_their_own(self):
        keys, rows = torch.tensor([3, 4]), torch.arange(9)
        both = normal(keys, rows, 4)
        assert torch.equal(both[1], normal(keys[1], rows, 4))
