"""The Avalanche plug-in with the real library: its Naive strategy comes to the numbers of our own loop."""

import os
import warnings

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader

import fopng

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    pytest.importorskip("avalanche")
    from avalanche.benchmarks import tensors_benchmark
    from avalanche.checkpointing import maybe_load_checkpoint, save_checkpoint
    from avalanche.models import IncrementalClassifier, MultiHeadClassifier, MultiTaskModule
    from avalanche.training.plugins import ReplayPlugin
    from avalanche.training.supervised import Naive

    from fopng.integrations.avalanche import ContinualPlugin, predict_experience

from fopng.lab.engine import Seeds, train
from fopng.lab.engine.stages import Stage
from fopng.lab.runs.request import build, configurations

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore:.*weights_only"),
    pytest.mark.filterwarnings("ignore:No loggers specified"),
]


def make_strategy(model, optimizer, plugins=(), kind=Naive, epochs=2, **more):
    return kind(
        model=model,
        optimizer=optimizer,
        criterion=nn.CrossEntropyLoss(),
        train_mb_size=10,
        train_epochs=epochs,
        evaluator=None,
        plugins=[ContinualPlugin(), *plugins],
        **more,
    )


def digits(task, count=40, width=6, classes=None):
    """A task of random points; two classes, or as many as told."""
    generator = torch.Generator().manual_seed(task)
    x = torch.randn(count, width, generator=generator)
    y = (x[:, task] > 0).long() if classes is None else torch.arange(count) % classes
    return x, y


def stream_of(arrays, task_labels=None):
    """An experience for each pair of arrays."""
    labels = task_labels or [0] * len(arrays)
    return tensors_benchmark(train_tensors=arrays, test_tensors=arrays, task_labels=labels).train_stream


# Agreement with our own loop


class InOrder(Naive):
    """Naive, with the order of our own loop."""

    def make_train_dataloader(self, **anything):
        stage = self.stages[self.experience.current_experience]
        sampler = Orders(stage)
        self.dataloader = DataLoader(
            self.adapted_dataset, 10, sampler=sampler, collate_fn=self.adapted_dataset.collate_fn
        )


class Orders:
    """Another order each time."""

    def __init__(self, stage):
        self.stage, self.epoch = stage, 0

    def __iter__(self):
        order = self.stage.order(self.epoch, self.stage.tasks[0]).tolist()
        self.epoch += 1
        return iter(order)

    def __len__(self):
        return len(self.stage.stream[self.stage.tasks[0]].train)


class WithoutTask(nn.Module):
    """Our models take the task's number; Avalanche's take none."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, x):
        return self.model(x, task=0)


needs_mnist = pytest.mark.skipif("FOPNG_DATA" not in os.environ, reason="real MNIST is not at hand: set FOPNG_DATA")


@pytest.mark.parametrize(
    ("benchmark", "tasks", "epochs"),
    [
        ("split-digits", 3, 2),
        ("permuted-digits", 3, 2),
        ("split-mnist-5k", 2, 1),
        ("permuted-mnist-5k", 2, 1),
        pytest.param("split-mnist", 2, 1, marks=needs_mnist),
    ],
)
@pytest.mark.parametrize("method", ["fopng", "ewc"])
def test_naive_comes_to_the_numbers_of_our_own_loop(benchmark, tasks, epochs, method, shared_cache):
    [config] = configurations(
        benchmark=benchmark, methods=[method], seeds=[0], epochs=epochs, assignments=[f"tasks={tasks}"]
    )
    plan, cpu = build(config, None), torch.device("cpu")
    expected = train(plan, device=cpu).accuracy[-1]

    seeds = Seeds(plan.seed)
    model = WithoutTask(plan.make_model(seeds.weights))
    optimizer = plan.make_optimizer(
        model,
        first_task=torch.optim.SGD(model.parameters(), lr=plan.first_task_lr),
        predict=predict_experience,
        generator=torch.Generator().manual_seed(seeds.fisher),
    )
    strategy = make_strategy(model, optimizer, kind=InOrder, epochs=epochs)
    strategy.stages = [Stage(k, (k,), plan.stream, 10, seeds, cpu) for k in range(len(plan.stream))]
    for experience in stream_of([task.train.read(torch.arange(len(task.train))) for task in plan.stream]):
        strategy.train(experience)
    found = []
    for task in plan.stream:
        x, y = task.test.read(torch.arange(len(task.test)))
        found.append((model(x).argmax(1) == y).double().mean().item())
    assert found == pytest.approx(list(expected), abs=1e-12)
    assert len(set(found)) > 1 or found[0] > 0.6


# Models that change


class Growing(nn.Module):
    """A classifier that gets a row for each new class."""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(6, 8), nn.Tanh())
        self.head = IncrementalClassifier(8, initial_out_features=2, masking=False)

    def forward(self, x):
        return self.head(self.body(x))


class Heads(MultiTaskModule):
    """A head for each task."""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(6, 8), nn.Tanh())
        self.heads = MultiHeadClassifier(8, initial_out_features=2, masking=False)

    def forward(self, x, task_labels):
        return self.heads(self.body(x), task_labels)


METHODS = [
    fopng.FOPNG,
    fopng.FOPNGPreFisher,
    fopng.OGD,
    fopng.EWC,
    fopng.SI,
    fopng.GPM,
    fopng.LwF,
    fopng.AGEM,
    fopng.Adam,
]


def classes_stream():
    """Two new classes with each experience, the first classes first: 0 and 1, 2 and 3, 4 and 5."""
    return stream_of([(digits(k)[0], digits(k)[1] + 2 * k) for k in range(3)])


@pytest.mark.parametrize("method", METHODS)
def test_classifiers_that_grow_are_followed(method):
    torch.manual_seed(0)
    model = Growing()
    optimizer = method(model, lr=1e-2, predict=predict_experience)
    strategy = make_strategy(model, optimizer)
    for experience in classes_stream():
        strategy.train(experience)
    assert model.head.classifier.out_features == 6
    assert optimizer.tasks_done == 3
    assert optimizer.layout.shapes["head.classifier.weight"] == (6, 8)
    before = [p.clone() for p in model.parameters()]
    strategy.train(classes_stream()[0])
    moved = [not torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True)]
    assert any(moved)


def test_what_is_stored_of_old_classes_is_as_if_the_classifier_had_been_large_from_the_start():
    """Gradients of the true class's logit: new rows have no part in them."""
    small, large = nn.Linear(6, 2).double(), nn.Linear(6, 5).double()
    data = [tuple(t.double() if t.is_floating_point() else t for t in digits(0))]
    made = [fopng.OGD(model, lr=0.1, generator=torch.Generator().manual_seed(3)) for model in (small, large)]
    with torch.no_grad():
        large.weight[:2], large.bias[:2] = small.weight, small.bias
    for optimizer in made:
        optimizer.begin_task()
        optimizer.end_task(data)
    small.weight, small.bias = nn.Parameter(large.weight.detach().clone()), nn.Parameter(large.bias.detach().clone())
    made[0].adopt_parameters()
    for model, optimizer in zip((small, large), made, strict=True):
        optimizer.begin_task()
        optimizer.refresh(data)
        nn.functional.cross_entropy(model(data[0][0]), torch.arange(40) % 5).backward()
        optimizer.step()
    torch.testing.assert_close(small.weight, large.weight)
    torch.testing.assert_close(small.bias, large.bias)
    assert made[0].removed_fraction() > 0.01


@pytest.mark.parametrize("method", METHODS)
def test_a_head_for_each_task(method):
    torch.manual_seed(0)
    model = Heads()
    optimizer = method(model, lr=1e-2, predict=predict_experience)
    strategy = make_strategy(model, optimizer)
    stream = stream_of([digits(k) for k in range(3)], task_labels=[0, 1, 2])
    strategy.train(stream[0])
    first = model.heads.classifiers["0"].classifier.weight.clone()
    strategy.train(stream[1])
    strategy.train(stream[2])
    assert set(model.heads.classifiers) == {"0", "1", "2"}
    assert sum(name.startswith("heads.") for name in optimizer.layout.names) == 6
    rehearses = method in (fopng.LwF, fopng.AGEM)
    assert rehearses or torch.equal(model.heads.classifiers["0"].classifier.weight, first)


def test_what_is_kept_as_matrices_over_rows_refuses_to_grow():
    model = Growing()
    strategy = make_strategy(model, fopng.NCL(model, lr=1e-2, predict=predict_experience))
    stream = classes_stream()
    strategy.train(stream[0])
    with pytest.raises(ValueError, match=r"got more rows in \['head.classifier.weight', 'head.classifier.bias'\]"):
        strategy.train(stream[1])


# Checkpoints, other plug-ins, misuse


@pytest.mark.parametrize("method", METHODS)
def test_avalanches_own_checkpoints_go_on_to_the_same_numbers(method, tmp_path):
    def made():
        torch.manual_seed(0)
        model = Growing()
        return make_strategy(model, method(model, lr=1e-2, predict=predict_experience))

    stream, whole = classes_stream(), made()
    for experience in stream[:2]:
        whole.train(experience)
    save_checkpoint(whole, tmp_path / "checkpoint.pkl")
    torch.manual_seed(5)
    whole.train(stream[2])
    again, done = maybe_load_checkpoint(made(), tmp_path / "checkpoint.pkl")
    assert done == 2
    assert again.optimizer.model is again.model
    torch.manual_seed(5)
    again.train(stream[2])
    for expected, found in zip(whole.model.parameters(), again.model.parameters(), strict=True):
        assert torch.equal(expected, found)


def test_samples_that_another_plugin_rehearses_are_not_taken_for_the_task():
    model = nn.Linear(6, 2)
    seen = []

    class Watched(type(predict_experience).__mro__[1]):
        def __call__(self, model, batch):
            seen.append(batch[0])
            return predict_experience(model, batch)

        def task_of(self, batch):
            return 0

        def as_task(self, batch, task):
            return batch

    optimizer = fopng.FOPNG(model, lr=1e-2, predict=Watched(), gradients_per_task=40)
    strategy = make_strategy(model, optimizer, [ReplayPlugin(mem_size=20)])
    first, second = digits(0), digits(1)
    stream = stream_of([first, second])
    strategy.train(stream[0])
    seen.clear()
    strategy.train(stream[1])
    rows = {tuple(row.tolist()) for x in seen for row in x}
    assert rows == {tuple(row.tolist()) for row in second[0]}


def test_other_optimizers_are_refused():
    model = nn.Linear(6, 2)
    [experience] = stream_of([digits(0)])
    with pytest.raises(TypeError, match="one of fopng's optimizers, got a SGD"):
        make_strategy(model, torch.optim.SGD(model.parameters(), lr=1e-2)).train(experience)
    with pytest.raises(TypeError, match="predict=fopng.integrations.avalanche.predict_experience"):
        make_strategy(model, fopng.FOPNG(model, lr=1e-2)).train(experience)
