"""Side by side a run has the numbers that it has alone."""

import dataclasses

import pytest
import torch
from torch import nn
from torch.nn.functional import relu

from fopng.lab.benchmarks import Scenario, Task, TaskStream
from fopng.lab.benchmarks.models import MLP
from fopng.lab.engine import Interrupted, train
from fopng.lab.engine.batched import NotStackable, train_replicas
from fopng.lab.runs.settings import defaults_of
from fopng.lab.storage.checkpoint import Checkpoint, CheckpointError
from fopng.optim.registry import METHODS
from replicas.pairs import ONE_BY_ONE, assert_same_runs, one_by_one, plans, side_by_side
from small_runs import CPU, SETTINGS, numbers, plan, same, stream

every_method = pytest.mark.parametrize("method", ONE_BY_ONE)


@every_method
@pytest.mark.parametrize("count", [1, 4])
def test_equals_the_drop_in_optimizer(method, count, tmp_path):
    assert_same_runs(plans(method, range(count)), tmp_path)


@every_method
def test_separate_heads(method, tmp_path):
    assert_same_runs(plans(method, range(2), tasks=stream(Scenario.TASK, tasks=3)), tmp_path)


@every_method
def test_gradients_written_where_they_belong(method, tmp_path, monkeypatch):
    """As on a GPU: the layers write them into one vector. Heads that take no part leave theirs alone, sums of gradients too."""
    asked = []
    monkeypatch.setattr("fopng.lab.engine.batched.model.usable", lambda x: not asked.append(x))
    own = {} if method == "adam" else {"momentum": 0.5}
    made = plans(method, range(2), tasks=stream(Scenario.TASK, tasks=3), settings=[own] * 2)
    assert_same_runs(made, tmp_path)
    assert asked


@every_method
def test_the_method_learns_the_first_task_itself(method, tmp_path):
    assert_same_runs(plans(method, range(2), first_task_lr=None), tmp_path)


def frozen_below(seed):
    network = MLP((1, 4, 4), [2], hidden=(8,), seed=seed)
    layer = network.body[1].requires_grad_(False)
    layer.weight.copy_(torch.arange(128).reshape(8, 16) % 5 / 10)
    layer.bias.zero_()
    return network


@every_method
def test_a_frozen_layer_that_all_seeds_share(method, tmp_path):
    made = plans(method, range(2), make_model=frozen_below)
    (single, alone), (replicas, together) = one_by_one(made, tmp_path), side_by_side(made, tmp_path)
    torch.testing.assert_close(together, alone[:, -together.shape[1] :], rtol=1e-9, atol=1e-11)
    assert together.shape[1] == 18
    assert [outcome.accuracy for outcome in replicas] == [outcome.accuracy for outcome in single]


def test_tasks_of_their_own(tmp_path):
    """Each run draws its own tasks from its seed, as permutations are, and holds some samples back."""
    made = [plans("fopng", [seed], tasks=stream(tasks=2, seed=seed, validation=True))[0] for seed in range(3)]
    assert_same_runs(made, tmp_path)


NUMERIC = [
    ("fopng", {"lr": [0.05, 0.01, 0.002]}),
    ("fopng", {"damping": [1e-3, 1e-2, 1e-1]}),
    ("fopng", {"gram_damping": [1e-3, 1e-2, 1e-1]}),
    ("fopng", {"projection": ["orthogonal"] * 3, "gram_damping": [1e-6, 1e-3, 1e-1]}),
    ("fopng", {"fisher_weight": [0.1, 0.5, 0.9]}),
    ("fopng-prefisher", {"momentum": [0.0, 0.5, 0.9], "damping": [1e-3, 1e-2, 1e-1]}),
    ("natural-ogd", {"lr": [0.05, 0.01, 0.002], "momentum": [0.0, 0.5, 0.9]}),
    ("ong", {"gram_damping": [1e-6, 1e-3, 1e-1]}),
    ("ogd", {"gram_damping": [1e-6, 1e-3, 1e-1]}),
    ("ewc", {"strength": [0.0, 10.0, 1000.0], "lr": [0.05, 0.01, 0.002]}),
    ("si", {"strength": [0.0, 0.1, 1.0], "damping": [0.1, 0.01, 1.0]}),
    ("mas", {"strength": [0.0, 1.0, 10.0]}),
    ("er", {"strength": [0.0, 0.5, 2.0], "momentum": [0.0, 0.5, 0.9]}),
    ("gem", {"margin": [0.0, 0.5, 1.0], "lr": [0.05, 0.01, 0.002]}),
    ("lwf", {"strength": [0.5, 1.0, 2.0], "temperature": [1.0, 2.0, 4.0]}),
    ("gpm", {"threshold": [0.5, 0.7, 0.9], "threshold_growth": [0.0, 0.05, 0.2]}),
    ("sgp", {"importance_scale": [0.0, 3.0, 100.0], "threshold": [0.5, 0.7, 0.9]}),
    ("online-ewc", {"decay": [0.0, 0.5, 1.0]}),
    ("fopng-k", {"strength": [0.0, 0.1, 10.0], "lr": [0.05, 0.01, 0.002]}),
    ("ncl", {"strength": [1.0, 10.0, 1000.0], "momentum": [0.0, 0.5, 0.9]}),
    ("adam", {"epsilon": [1e-8, 1e-4, 1e-2]}),
    ("sgd", {"lr": [0.05, 0.01, 0.002], "momentum": [0.0, 0.5, 0.9]}),
]


@pytest.mark.parametrize(("method", "values"), NUMERIC, ids=lambda x: x if isinstance(x, str) else "-".join(x))
def test_numeric_settings_of_their_own(method, values, tmp_path):
    settings = [dict(zip(values, own, strict=True)) for own in zip(*values.values(), strict=True)]
    assert_same_runs(plans(method, [0, 0, 1], settings=settings), tmp_path)


COMPRESSED = ["ogd", "ong", "natural-ogd", "fopng", "fopng-prefisher"]


@pytest.mark.parametrize("method", COMPRESSED)
@pytest.mark.parametrize("energy", [1.0, 0.7])
def test_a_compressed_memory(method, energy, tmp_path):
    settings = [
        {"when_full": "compress", "max_directions": 7, "kept_energy": share} for share in (energy, 0.9 * energy)
    ]
    made = plans(method, range(2), tasks=stream(Scenario.TASK, tasks=3), settings=settings)
    assert_same_runs(made, tmp_path)
    outcome = side_by_side(made, tmp_path)[0][0]
    assert outcome.measured["compression_error"][0] is None
    assert all(0 < error < 1 for error in outcome.measured["compression_error"][1:])


def test_the_printed_protocol_with_rates_of_their_own(tmp_path):
    rates = [0.05, 0.01]
    made = [plans("fopng", [0], settings=[{"lr": rate}], first_task_lr=rate)[0] for rate in rates]
    assert_same_runs(made, tmp_path)


@every_method
def test_every_number_of_a_method_can_differ(method):
    """What is typed as a number stands side by side, or a sweep over it would run one by one without need."""
    for name, default in defaults_of(METHODS[method]).items():
        if not isinstance(default, float):
            continue
        settings = [{name: default * share + 1e-3} for share in (0.5, 0.9)]
        train_replicas(plans(method, [0, 0], settings=settings, epochs=1, tasks=stream(tasks=1)), device=CPU)


@pytest.mark.parametrize("metric", ["kfac", "ekfac", "low-rank", "full"])
@pytest.mark.parametrize("method", ["fng", "ong", "natural-ogd", "fopng", "fopng-prefisher"])
def test_every_metric(method, metric, tmp_path):
    own = {"prefisher": "metric"} if method == "fopng-prefisher" else {}
    settings = [{"metric": metric, "fisher_samples": 20, "damping": damping, **own} for damping in (1e-2, 1e-1)]
    assert_same_runs(plans(method, range(2), settings=settings, epochs=1), tmp_path, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("labels", ["observed", "sampled", "expected"])
def test_labels_are_drawn_by_each_run_alone(labels, tmp_path):
    settings = [{"labels": labels, "fisher_samples": samples} for samples in [20] * 3]
    assert_same_runs(plans("fopng", range(3), settings=settings), tmp_path)


@pytest.mark.parametrize("method", ["fopng", "er"])
def test_the_convnet_with_dropout(method, tmp_path):
    """Single precision: within the rounding that a few dozen steps gather. Old samples are rehearsed with features dropped."""
    tasks = stream(Scenario.TASK, tasks=2, samples=20, shape=(3, 4, 4))
    made = plans(method, range(3), tasks=tasks, precision="float32", epochs=1)
    assert_same_runs(made, tmp_path, rtol=2e-3, atol=2e-5)


def test_what_stands_beside_a_run_does_not_change_it(tmp_path):
    made = plans("fopng", range(4), precision="float32")
    _, whole = side_by_side(made, tmp_path)
    for part in ([0, 1], [2, 3], [1, 3, 0]):
        _, found = side_by_side([made[r] for r in part], tmp_path)
        torch.testing.assert_close(found, whole[part], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("precision", ["tf32", "bfloat16"])
def test_other_precisions(precision, tmp_path):
    """On a CPU tf32 is float32; bfloat16 rounds the passes of both engines alike."""
    tolerance = {"tf32": {"rtol": 1e-4, "atol": 1e-6}, "bfloat16": {"rtol": 5e-2, "atol": 5e-2}}[precision]
    made = plans("fopng", range(2), precision=precision, epochs=1)
    (_, together), (_, alone) = side_by_side(made, tmp_path), one_by_one(made, tmp_path)
    torch.testing.assert_close(together, alone, **tolerance)


class Mixed(nn.Module):
    """A user's model: its own layers, its own way through them."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(16, 6), nn.Linear(6, 2)
        self.scale = nn.Parameter(torch.ones(6))

    def forward(self, x, task=None):
        return self.second(torch.tanh(self.first(x.flatten(1))) * self.scale)


class Reading(nn.Module):
    """A user's model whose inputs are whole numbers."""

    def __init__(self):
        super().__init__()
        self.words, self.out = nn.Embedding(5, 4), nn.Linear(12, 2)

    def forward(self, x, task=None):
        return self.out(self.words(x).flatten(1))


class Drawing(Mixed):
    def forward(self, x, task=None):
        return self.second(nn.functional.dropout(self.first(x.flatten(1)), 0.5, self.training))


class Branching(Mixed):
    def forward(self, x, task=None):
        x = self.first(x.flatten(1))
        return self.second(relu(x) if bool(x.sum() > 0) else x)


class Normed(Mixed):
    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(6)


def seeded(model):
    def make(seed):
        torch.manual_seed(seed)
        return model()

    return make


class TestOwnModel:
    def test_equals_single_runs(self, tmp_path):
        assert_same_runs(plans("fopng", range(2), make_model=seeded(Mixed)), tmp_path)

    def test_inputs_that_are_whole_numbers(self, tmp_path):
        words = torch.arange(120).reshape(40, 3).numpy() % 5
        task = Task.of("words", train=(words, words[:, 0] % 2), test=(words, words[:, 0] % 2))
        tasks = TaskStream.of("words", [task, task], Scenario.DOMAIN)
        assert_same_runs(plans("ogd", range(2), tasks=tasks, make_model=seeded(Reading)), tmp_path)

    @pytest.mark.parametrize(
        ("model", "words"), [(Drawing, "random"), (Branching, "cannot be asked"), (Normed, "buffers")]
    )
    def test_one_that_cannot_stand_side_by_side_is_refused(self, model, words):
        with pytest.raises(NotStackable, match=words):
            train_replicas(plans("sgd", range(2), make_model=seeded(model)), device=CPU)


class TestRefusals:
    def test_joint_training(self):
        with pytest.raises(NotStackable, match="joint"):
            train_replicas([plan("joint"), plan("joint", seed=1)], device=CPU)

    def test_settings_that_decide_a_size(self):
        settings = [{"gradients_per_task": count} for count in (3, 5)]
        with pytest.raises(NotStackable, match="gradients_per_task"):
            train_replicas(plans("fopng", range(2), settings=settings), device=CPU)

    @pytest.mark.parametrize("change", [{"epochs": 1}, {"batch_size": 4}, {"first_task_lr": None}])
    def test_runs_of_different_lengths(self, change):
        with pytest.raises(NotStackable, match="side by side"):
            train_replicas([*plans("sgd", [0]), *plans("sgd", [1], **change)], device=CPU)

    def test_tasks_of_different_sizes(self):
        made = [plans("sgd", [0], tasks=stream(tasks=2, samples=count))[0] for count in (20, 25)]
        with pytest.raises(NotStackable, match="one size"):
            train_replicas(made, device=CPU)

    def test_a_dataset_that_may_draw(self):
        x, y = torch.randn(20, 1, 4, 4), torch.arange(20) % 2
        pairs = torch.utils.data.TensorDataset(x, y)
        tasks = TaskStream.of("own", [Task.of("a", train=pairs, test=(x.numpy(), y.numpy()))], Scenario.DOMAIN)
        with pytest.raises(NotStackable, match="at random"):
            train_replicas(plans("sgd", range(2), tasks=tasks), device=CPU)


class Notebook:
    """What an observer is told, as plain data, with what is measured of every step."""

    def __init__(self):
        self.events = []

    def observe(self, event):
        told = {field.name: getattr(event, field.name) for field in dataclasses.fields(event)}
        told.pop("seconds", None)
        told |= told.pop("measure", dict)()
        self.events.append((event.kind, told))

    def of(self, kind):
        return [told for name, told in self.events if name == kind]


def close(value):
    if isinstance(value, tuple):
        return tuple(map(close, value))
    return pytest.approx(value, rel=1e-5, abs=1e-5, nan_ok=True) if isinstance(value, float) else value


class TestTelling:
    @pytest.mark.parametrize("method", ["fopng", "sgd", "gpm"])
    def test_a_run_in_a_group_is_told_what_it_is_told_alone(self, method):
        """The same events in the same order, with the same figures of every step."""
        made, own = plans(method, range(2), tasks=stream(tasks=2, validation=True)), [Notebook(), Notebook()]
        train_replicas(made, device=CPU, own_observers=[[each] for each in own])
        for each, found in zip(made, own, strict=True):
            alone = Notebook()
            train(each, device=CPU, observers=[alone])
            assert [name for name, _ in found.events] == [name for name, _ in alone.events]
            for (_, expected), (_, told) in zip(alone.events, found.events, strict=True):
                assert told.keys() == expected.keys()
                assert told == {name: close(value) for name, value in expected.items()}

    def test_of_all_together(self):
        made, everybody = plans("fopng", range(3)), Notebook()
        outcomes = train_replicas(made, device=CPU, observers=[everybody])
        [started] = everybody.of("run started")
        assert (started["runs"], started["done"]) == (3, 0)
        assert everybody.of("step")[-1]["step"] == started["steps"]
        assert "loss" in everybody.of("step")[0]
        assert everybody.of("evaluated")[-1]["average"] == pytest.approx(
            sum(sum(outcome.accuracy[-1]) / 2 for outcome in outcomes) / 3
        )

    def test_costs_are_shared(self):
        outcomes = train_replicas(plans("ogd", range(2)), device=CPU)
        assert outcomes[0].seconds_by_phase == outcomes[1].seconds_by_phase
        assert outcomes[0].seconds_by_phase["train"] > 0
        assert outcomes[0].peak_memory_bytes > 0


class TestResume:
    @pytest.mark.parametrize("method", ["fopng", "fopng-prefisher", "adam", "ewc", "si", "lwf", "er", "gem"])
    @pytest.mark.parametrize("steps", [3, 12, 25])
    def test_stopped_anywhere_it_ends_with_the_same_bits(self, method, steps, tmp_path):
        made, whole, cut = plans(method, range(2), precision="float32"), tmp_path / "whole", tmp_path / "cut"
        for folder in (whole, cut):
            folder.mkdir()
        expected = train_replicas(made, device=CPU, checkpoint=Checkpoint(whole))
        asked = iter(range(10**6))
        with pytest.raises(Interrupted):
            train_replicas(
                made, device=CPU, checkpoint=Checkpoint(cut), should_stop=lambda: next(asked) >= steps, save_seconds=0
            )
        found = train_replicas(made, device=CPU, checkpoint=Checkpoint(cut))
        assert [numbers(outcome) for outcome in found] == [numbers(outcome) for outcome in expected]
        first, second = (Checkpoint(folder).load().state for folder in (whole, cut))
        assert all(same(first[part], second[part]) for part in ("runs", "answers"))

    def test_a_checkpoint_of_other_runs_is_refused(self, tmp_path):
        train_replicas(plans("fopng", range(2)), device=CPU, checkpoint=Checkpoint(tmp_path))
        with pytest.raises(CheckpointError, match="start over: with --again"):
            train_replicas(plans("fopng", range(3)), device=CPU, checkpoint=Checkpoint(tmp_path))


def test_every_method_has_settings_here():
    assert set(ONE_BY_ONE) <= set(SETTINGS)
