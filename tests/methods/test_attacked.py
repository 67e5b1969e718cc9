"""What an attack on an earlier version found: each test failed there."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import fopng


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3))


def batches(classes=3):
    return [(torch.randn(16, 8), torch.randint(classes, (16,))) for _ in range(4)]


def learn(optimizer, model, number, loader=None):
    loader = batches() if loader is None else loader
    optimizer.begin_task(number)
    optimizer.refresh(loader)
    for x, y in loader:
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
    optimizer.end_task(loader)


class Functional(nn.Module):
    """A layer whose module is never called."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 3)

    def forward(self, x):
        return F.linear(x, self.layer.weight, self.layer.bias)


@pytest.mark.parametrize("name", ["GPM", "SGP", "KroneckerFOPNG", "NCL"])
def test_layers_that_are_not_called_as_modules_end_tasks(name):
    model = Functional()
    optimizer = getattr(fopng, name)(model, lr=0.1)
    for number in range(2):
        learn(optimizer, model, number)
    assert optimizer.tasks_done == 2


@pytest.mark.parametrize("metric", ["diagonal", "kfac", "ekfac", "low-rank", "full"])
@pytest.mark.parametrize("name", ["FOPNG", "FOPNGPreFisher", "NaturalOGD"])
def test_a_full_memory_is_compressed_in_float32_in_every_metric(name, metric):
    model = network()
    sizes = {"gradients_per_task": 8, "max_directions": 12, "when_full": "compress"}
    optimizer = getattr(fopng, name)(model, lr=0.01, metric=metric, **sizes)
    for number in range(4):
        learn(optimizer, model, number)
    memory = optimizer.pipeline.state.memory
    assert memory.count == 12
    assert 0 <= float(memory.error) <= 1


def test_a_task_whose_end_fails_can_be_ended_again(monkeypatch):
    model, loader = network(), batches()
    optimizer = fopng.FOPNG(model, lr=0.01, gradients_per_task=8, max_directions=12, when_full="compress")
    learn(optimizer, model, 0, loader)
    learn(optimizer, model, 1, loader)
    optimizer.begin_task(2)
    optimizer.refresh(loader)
    refreshed = optimizer.pipeline.state
    with monkeypatch.context() as patch:
        patch.setattr("fopng.optim.projected_base.captured", lambda *arguments: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            optimizer.end_task(loader)
    assert optimizer.pipeline.state is refreshed
    assert optimizer.in_task
    optimizer.end_task(loader)
    assert optimizer.tasks_done == 3


@pytest.mark.parametrize("option", [{"weight_decay": 0.1}, {"momentum": 0.9}, {"betas": (0.5, 0.5)}])
def test_what_a_group_asks_for_in_vain_is_told(option):
    model = network()
    with pytest.raises(ValueError, match=f"got {next(iter(option))}, which it would ignore"):
        fopng.SGD(model, lr=0.1, groups=[{"params": model[0].parameters(), **option}])
    optimizer = fopng.SGD(model, lr=0.1)
    with pytest.raises(ValueError, match="would ignore"):
        optimizer.add_param_group({"params": nn.Linear(2, 2).parameters(), **option})


def test_schedulers_reach_the_sgd_of_the_first_task():
    model = network()
    optimizer = fopng.FOPNG(model, lr=1e-3, groups=[{"params": model[0].parameters(), "lr": 1e-3}])
    still = fopng.FOPNG(network(), lr=1e-3)
    torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 0.0)
    before = [p.detach().clone() for p in model.parameters()]
    for own in (optimizer, still):
        learn(own, own.model, 0)
    assert all(torch.equal(p, old) for p, old in zip(model.parameters(), before, strict=True))
    assert not torch.equal(next(still.model.parameters()), before[0])


def test_a_first_optimizer_of_ones_own_keeps_its_rate():
    model = network()
    first = torch.optim.SGD(model.parameters(), lr=0.5)
    optimizer = fopng.FOPNG(model, lr=1e-3, first_task=first)
    torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 0.0)
    learn(optimizer, model, 0)
    assert first.param_groups[0]["lr"] == 0.5


@pytest.mark.parametrize("name", ["OGD", "EWC", "GPM", "KroneckerFOPNG", "FNG"])
@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"predict": lambda model, batch: model(batch[0])}, r"Expected predict to return \(outputs, targets\)"),
        ({"likelihood": fopng.Bernoulli()}, "Expected"),
    ],
)
def test_a_wrong_predict_or_likelihood_is_told_before_the_first_task_is_learnt(name, wrong, message):
    optimizer = getattr(fopng, name)(network(), lr=0.1, **wrong)
    optimizer.begin_task(0)
    with pytest.raises((TypeError, ValueError), match=message):
        optimizer.refresh(batches())


def test_looking_at_the_data_first_draws_nothing_and_leaves_statistics_alone():
    model = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.Dropout(), nn.Linear(16, 3))
    optimizer = fopng.SGD(model, lr=0.1)
    optimizer.begin_task(0)
    loader = torch.utils.data.DataLoader(
        list(zip(torch.randn(8, 8), torch.arange(8) % 3, strict=True)), 4, shuffle=True
    )
    drawn, kept = torch.get_rng_state(), model[1].running_mean.clone()
    optimizer.refresh(loader)
    assert torch.equal(torch.get_rng_state(), drawn)
    assert torch.equal(model[1].running_mean, kept)
    assert model.training


def test_a_state_of_a_compiled_model_goes_on_in_the_plain_one_and_back():
    plain = network()
    compiled = torch.compile(network(), backend="eager")
    first = fopng.EWC(compiled, lr=0.1)
    learn(first, compiled, 0)
    second = fopng.EWC(plain, lr=0.1)
    second.load_state_dict(first.state_dict())
    fopng.EWC(torch.compile(network(), backend="eager"), lr=0.1).load_state_dict(second.state_dict())
    assert second.tasks_done == 1


def test_natural_continual_learning_with_a_diagonal_grows():
    model = network()
    optimizer = fopng.NCL(model, lr=0.01, metric="diagonal")
    learn(optimizer, model, 0)
    larger = nn.Linear(16, 5)
    with torch.no_grad():
        larger.weight[:3], larger.bias[:3] = model[2].weight, model[2].bias
    model[2] = larger
    optimizer.adopt_parameters()
    learn(optimizer, model, 1, batches(5))
    assert optimizer.tasks_done == 2
