"""Rehearsing side by side: small draws of several tasks in one pass, as if each were alone."""

import pytest
import torch
from torch import nn

from flat import flat
from fopng.core.layout import ParamLayout
from fopng.lab.benchmarks import Scenario
from fopng.lab.benchmarks.models import MLP, ConvNet, Network, drawn_from
from fopng.lab.engine.batched import replay
from fopng.lab.engine.batched.model import StackedModel
from fopng.lab.engine.batched.replay import StackedRehearser
from fopng.memory.old_answers import WholeAnswers
from fopng.memory.replay_samples import Drawn
from replicas.pairs import assert_same_runs, plans
from small_runs import stream


class Own(nn.Module):
    """A user's network, which does not say what a head is."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.network = MLP((1, 4, 4), [3, 3, 3], hidden=(8,), seed=seed)

    def forward(self, x, task):
        return self.network(x, task=task)


class Rolled(Network):
    """Its inputs are another task's, too."""

    def __init__(self, seed: int) -> None:
        with drawn_from(seed):
            super().__init__(nn.Sequential(nn.Flatten(), nn.Linear(16, 8), nn.Tanh()), 8, [3, 3, 3])

    def forward(self, x, task=None):
        return super().forward(x.roll(task, -1), task)


def other_head(seed: int):
    network = MLP((1, 4, 4), [3, 3, 3], hidden=(8,), seed=seed)
    network.heads[1] = nn.Sequential(network.heads[1], nn.Tanh())
    return network


NETWORKS = {
    "one head": lambda seed: MLP((1, 4, 4), [3], hidden=(8,), seed=seed),
    "heads": lambda seed: MLP((1, 4, 4), [3, 3, 3], hidden=(8,), seed=seed),
    "dropout": lambda seed: ConvNet((3, 8, 8), [3, 3, 3], seed=seed),
    "heads of different sizes": lambda seed: MLP((1, 4, 4), [3, 4, 3], hidden=(8,), seed=seed),
    "a user's": Own,
    "inputs of their own": Rolled,
    "another kind of head": other_head,
}
IN_ONE_PASS = {"one head", "heads", "dropout"}


def stacked(name):
    models = [NETWORKS[name](seed).double() for seed in range(2)]
    return StackedModel(models, ParamLayout.of(models[0]))


def drawn(name, task, count=4, seed=0):
    generator = torch.Generator().manual_seed(10 * seed + task)
    shape = (3, 8, 8) if name == "dropout" else (1, 4, 4)
    x = torch.randn(2, count, *shape, generator=generator, dtype=torch.float64)
    y = torch.randint(3, (2, count), generator=generator)
    return Drawn((x, y, task), torch.rand(2, count, generator=generator, dtype=torch.float64), None)


def one_by_one(model, draws, keys):
    """The gradients `[R, k, p]`, and the parameters that any of them reached."""
    alone = [StackedRehearser(model, keys).gradient(each) for each in draws]
    return torch.stack([dense(model, each) for each in alone], 1), {name for each in alone for name in each.parts}


def dense(model, vector):
    return flat(vector, model.layout.shapes)


@pytest.fixture(autouse=True)
def as_on_a_gpu(monkeypatch):
    monkeypatch.setattr("fopng.lab.engine.batched.replay.usable", lambda x: True)
    monkeypatch.setattr("fopng.lab.engine.batched.model.usable", lambda x: True)


def passes(model, monkeypatch):
    asked, answers = [], model.answers

    def counted(*args):
        asked.append(args)
        return answers(*args)

    monkeypatch.setattr(model, "answers", counted)
    return asked


@pytest.mark.parametrize("name", NETWORKS)
def test_each_gradient_is_its_own(name, monkeypatch):
    model = stacked(name)
    keys = model.next_keys()
    assert (keys is not None) == (name == "dropout")
    draws = [drawn(name, task) for task in (0, 1, 2)]
    expected, reached = one_by_one(model, draws, keys)
    rehearser, asked = StackedRehearser(model, keys), passes(model, monkeypatch)
    found = rehearser.gradients(draws)
    torch.testing.assert_close(dense(model, found), expected, rtol=1e-10, atol=1e-12)
    assert set(found.parts) == reached
    assert len(asked) == (1 if name in IN_ONE_PASS else 3)
    assert (expected != 0).any(-1).all()


def test_draws_of_other_sizes_and_of_answers_go_alone(monkeypatch):
    model = stacked("heads")
    told = Drawn(
        drawn("heads", 0).batch, torch.ones(2, 4, dtype=torch.float64), WholeAnswers(torch.randn(2, 4, 3).double())
    )
    draws = [*(drawn("heads", task, count) for task, count in ((0, 4), (1, 4), (2, 5))), told, told, drawn("heads", 1)]
    expected, _ = one_by_one(model, draws, None)
    asked = passes(model, monkeypatch)
    found = StackedRehearser(model, None).gradients(draws)
    torch.testing.assert_close(dense(model, found), expected, rtol=1e-10, atol=1e-12)
    assert [len(args[1]) for args in asked] == [4, 2, 2, 2, 2]


def test_on_a_processor_one_after_another(monkeypatch):
    monkeypatch.setattr("fopng.lab.engine.batched.replay.usable", lambda x: False)
    model = stacked("heads")
    draws = [drawn("heads", task) for task in (0, 1, 2)]
    asked = passes(model, monkeypatch)
    found = StackedRehearser(model, None).gradients(draws)
    assert [len(args[1]) for args in asked] == [2, 2, 2]
    torch.testing.assert_close(dense(model, found), one_by_one(model, draws, None)[0])


def test_a_pass_has_no_more_samples_than_a_device_needs(monkeypatch):
    model = stacked("heads")
    draws = [drawn("heads", task, 4, seed) for seed in range(2) for task in (0, 1, 2)]
    expected, _ = one_by_one(model, draws, None)
    monkeypatch.setattr(replay, "IN_A_PASS", 9)
    asked = passes(model, monkeypatch)
    found = StackedRehearser(model, None).gradients(draws)
    torch.testing.assert_close(dense(model, found), expected, rtol=1e-10, atol=1e-12)
    assert [len(args[1]) for args in asked] == [4, 4, 4]


@pytest.mark.parametrize("scenario", [Scenario.DOMAIN, Scenario.TASK])
@pytest.mark.parametrize("shape", [(1, 4, 4), (3, 8, 8)])
def test_gem_of_many_tasks_equals_single_runs(scenario, shape, tmp_path):
    tasks = stream(scenario, tasks=4, samples=20, shape=shape)
    made = plans("gem", range(2), tasks=tasks, settings=[{"replay_samples": 3, "margin": 0.5}] * 2, epochs=1)
    assert_same_runs(made, tmp_path, rtol=1e-7, atol=1e-9)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("name", sorted(IN_ONE_PASS))
def test_on_a_gpu_with_its_kernels(name, monkeypatch):
    monkeypatch.undo()
    models = [NETWORKS[name](seed).cuda() for seed in range(2)]
    model = StackedModel(models, ParamLayout.of(models[0]))
    keys = model.next_keys()
    draws = [
        Drawn((d.batch[0].float().cuda(), d.batch[1].cuda(), task), d.shares.float().cuda(), None)
        for task in (0, 1, 2)
        for d in [drawn(name, task)]
    ]
    expected, _ = one_by_one(model, draws, keys)
    asked = passes(model, monkeypatch)
    found = StackedRehearser(model, keys).gradients(draws)
    torch.testing.assert_close(dense(model, found), expected, rtol=1e-4, atol=1e-5)
    assert len(asked) == 1
