import pytest
import torch
from torch.distributions import Bernoulli as TorchBernoulli
from torch.distributions import Categorical as TorchCategorical
from torch.distributions import Normal

from fopng.core.likelihood import Bernoulli, Categorical, Gaussian, signals

LIKELIHOODS = {
    "categorical": (Categorical(), lambda o: TorchCategorical(logits=o), torch.tensor([0, 2, 1, 2])),
    "bernoulli": (Bernoulli(), lambda o: TorchBernoulli(logits=o), torch.tensor([[0, 1, 1]] * 4)),
    "gaussian": (Gaussian(scale=0.7), lambda o: Normal(o, 0.7), torch.linspace(-1, 1, 12).reshape(4, 3).double()),
}
CLOSE = {"rtol": 1e-10, "atol": 1e-12}


def one(likelihood, kind, outputs, targets=None, **options):
    (signal,) = signals(likelihood, kind, outputs, targets, axes=1, **options)
    return signal


@pytest.mark.parametrize("name", LIKELIHOODS)
def test_observed_is_the_derivative_of_the_log_likelihood(name):
    likelihood, torch_form, targets = LIKELIHOODS[name]
    outputs = torch.randn(4, 3, dtype=torch.float64, requires_grad=True)
    (expected,) = torch.autograd.grad(torch_form(outputs).log_prob(targets.double()).sum(), outputs)
    for kind in ("observed", "log-likelihood"):
        torch.testing.assert_close(one(likelihood, kind, outputs, targets), expected, **CLOSE)


@pytest.mark.parametrize("name", LIKELIHOODS)
def test_expected_signals_make_the_fisher_at_the_outputs(name):
    """`E_y s s^T` is minus the expected Hessian of the log-likelihood, which torch knows for these three."""
    likelihood, torch_form, _ = LIKELIHOODS[name]
    outputs = torch.randn(4, 3, dtype=torch.float64)
    found = sum(torch.einsum("ni,nj->nij", s, s) for s in signals(likelihood, "expected", outputs, None, axes=1))
    for k in range(4):
        some = torch.tensor(1.0) if name != "categorical" else torch.tensor(0)
        hessian = torch.autograd.functional.hessian(lambda o, y=some: -torch_form(o).log_prob(y).sum(), outputs[k])
        torch.testing.assert_close(found[k], hessian, **CLOSE)


@pytest.mark.parametrize("name", LIKELIHOODS)
def test_sampled_labels_come_from_the_model(name):
    likelihood = LIKELIHOODS[name][0]
    outputs = torch.tensor([[1.0, -0.5, 0.2]], dtype=torch.float64).expand(20000, 3)
    s = one(likelihood, "sampled", outputs, generator=torch.Generator().manual_seed(1))
    fisher = sum(torch.outer(e[0], e[0]) for e in signals(likelihood, "expected", outputs[:1], None, axes=1))
    torch.testing.assert_close(s.T @ s / len(s), fisher, rtol=0.05, atol=0.05)
    again = one(likelihood, "sampled", outputs, generator=torch.Generator().manual_seed(1))
    assert torch.equal(s, again)
    other = one(likelihood, "sampled", outputs, generator=torch.Generator().manual_seed(2))
    assert not torch.equal(s, other)


def test_ground_truth_and_average():
    outputs = torch.randn(2, 3)
    assert one(Categorical(), "ground-truth", outputs, torch.tensor([2, 0])).tolist() == [[0, 0, 1], [1, 0, 0]]
    assert one(Bernoulli(), "ground-truth", outputs, torch.tensor([[1, 0, 1]] * 2)).tolist() == [[1, -1, 1]] * 2
    assert one(Gaussian(), "ground-truth", outputs, outputs).tolist() == [[1] * 3] * 2
    torch.testing.assert_close(one(Categorical(), "average", outputs), torch.full((2, 3), 1 / 3))


@pytest.mark.parametrize("kind", ["observed", "ground-truth", "average", "sampled", "expected"])
def test_ignored_positions_send_nothing_back(kind):
    outputs, targets = torch.randn(2, 4, 3), torch.tensor([[0, -1, 2, -1], [-1, 1, 1, 0]])
    found = list(signals(Categorical(ignore_index=-1), kind, outputs, targets, axes=1))
    total = sum(s.abs() for s in found)
    assert bool((total[targets == -1] == 0).all())
    assert bool((total[targets != -1].sum(-1) > 0).all())


@pytest.mark.parametrize(
    ("likelihood", "targets", "message"),
    [
        (Categorical(), torch.tensor([0, 3]), "labels from 0 to 2, got 3. Give the model an output"),
        (Categorical(), torch.tensor([0.0, 1.0]), "Expected integer targets"),
        (Categorical(), torch.zeros(2, 3).long(), r"Expected integer targets of shape \(2,\)"),
        (Bernoulli(), torch.full((2, 3), 2), "labels from 0 to 1"),
        (Bernoulli(), torch.zeros(2), "the outputs' shape"),
        (Gaussian(), torch.zeros(2, 1), "the outputs' shape"),
        (Categorical(), None, "Expected targets for 'observed', got None"),
    ],
)
def test_targets_that_do_not_fit(likelihood, targets, message):
    with pytest.raises(ValueError, match=message):
        one(likelihood, "observed", torch.zeros(2, 3), targets)


@pytest.mark.parametrize("targets", [None, torch.tensor([0, 1])])
def test_an_unknown_kind_is_named(targets):
    with pytest.raises(ValueError, match="got 'loss'"):
        one(Categorical(), "loss", torch.zeros(2, 3), targets)


def test_sampled_classes_do_not_depend_on_how_the_samples_are_cut():
    outputs = torch.randn(10, 4)
    whole, parts = (torch.Generator().manual_seed(1) for _ in range(2))
    cut = [Categorical().sample(piece, parts) for piece in outputs.split([3, 6, 1])]
    assert torch.equal(Categorical().sample(outputs, whole), torch.cat(cut))


def test_each_replica_draws_from_a_generator_of_its_own():
    outputs = torch.randn(3, 5, 4)
    together = next(signals(Categorical(), "sampled", outputs, None, axes=2, generator=generators(3)))
    alone = [
        next(signals(Categorical(), "sampled", own, None, axes=1, generator=generator))
        for own, generator in zip(outputs, generators(3), strict=True)
    ]
    assert torch.equal(together, torch.stack(alone))


def generators(count):
    return [torch.Generator().manual_seed(seed) for seed in range(count)]
