"""Every benchmark of the catalog on real images: the embedded sets always, the others where FOPNG_DATA has them."""

import numpy as np
import pytest
import torch

from fopng.lab.benchmarks import BENCHMARKS, Permuted, Scenario, SplitByClass
from fopng.lab.data import DATASETS, DatasetMissingError, load

pytestmark = pytest.mark.usefixtures("shared_cache")


def images_of(name):
    try:
        return load(name)
    except DatasetMissingError:
        pytest.skip(f"{name} is not on this machine")


def counts(targets):
    return torch.bincount(targets).tolist()


@pytest.fixture(params=[name for name in DATASETS if f"split-{name}" in BENCHMARKS])
def images(request):
    return images_of(request.param)


@pytest.mark.parametrize("kind", ["permuted", "rotated", "split"])
@pytest.mark.parametrize("validation", [True, False])
@pytest.mark.parametrize("scenario", Scenario)
def test_every_task(images, kind, validation, scenario):
    """Sizes, shapes, label sets, and no sample in two places."""
    benchmark = BENCHMARKS[f"{kind}-{images.name}"]
    benchmark = type(benchmark)(**{**vars(benchmark), "scenario": scenario})
    stream = benchmark.stream(images, seed=0, validation=validation)
    assert len(stream) == benchmark.task_count(images.classes)
    assert stream.input_shape == images.input_shape
    seen = []
    for number, task in enumerate(stream):
        head = stream.heads[0 if stream.shared_head else number]
        for split in task.splits:
            assert split.input_shape == images.input_shape
            assert int(split.targets.max()) < head
            assert len(set(split.targets.tolist())) == len(task.classes)
        assert (task.validation is not None) == validation
        x, _ = task.test.read(torch.arange(5))
        assert x.dtype == torch.float32
        seen += task.classes if kind == "split" else []
        check_sizes(images, task, validation)
    assert len(seen) == len(set(seen))
    if kind == "split":
        assert sorted(seen) == list(range(images.classes))
    if scenario is Scenario.CLASS:
        labels = [set(task.train.targets.tolist()) for task in stream]
        assert sum(map(len, labels)) == len(set().union(*labels))


def check_sizes(images, task, validation):
    train = np.bincount(images.train.labels, minlength=images.classes)[list(task.classes)]
    test = np.bincount(images.test.labels, minlength=images.classes)[list(task.classes)]
    held = train // 10 if validation else 0 * train
    assert len(task.train) == (train - held).sum()
    assert len(task.test) == test.sum()
    assert (len(task.validation) if task.validation else 0) == held.sum()


def test_train_and_validation_share_no_sample(images):
    stream = SplitByClass(images.name, classes_per_task=images.classes // 5).stream(images, seed=0, validation=True)
    for task in stream:
        rows = [set(split._rows.tolist()) for split in (task.train, task.validation)]
        assert not rows[0] & rows[1]


def test_permutations_of_real_images():
    images = images_of("mnist-5k")
    stream = Permuted("mnist-5k", tasks=50).stream(images, seed=0, validation=False)
    first, last = (stream[number].test.read(torch.arange(20))[0].flatten(1) for number in (0, 49))
    assert not torch.equal(first, last)
    assert torch.equal(first.sort(1).values, last.sort(1).values)


class TestThePaper:
    """Figures of the paper's own datasets, known independently of this package."""

    def test_split_mnist(self):
        stream = BENCHMARKS["split-mnist"].stream(images_of("mnist"), seed=0, validation=False)
        assert [len(task.train) for task in stream] == [12_665, 12_089, 11_263, 12_183, 11_800]
        assert [len(task.test) for task in stream] == [2_115, 2_042, 1_874, 1_986, 1_983]
        assert counts(stream[0].train.targets) == [5_923, 6_742]
        assert stream.heads == (10,)

    def test_mnist_pixels(self):
        x, _ = BENCHMARKS["rotated-mnist"].stream(images_of("mnist"), seed=0, validation=False)[0].train.tensors()
        assert (x.min(), x.max()) == (0, 1)
        assert x.mean().item() == pytest.approx(0.1307, abs=1e-4)
        assert x.std().item() == pytest.approx(0.3081, abs=1e-4)

    @pytest.mark.parametrize(("name", "tasks", "classes"), [("cifar10", 5, 2), ("cifar100", 10, 10)])
    def test_split_cifar(self, name, tasks, classes):
        images = images_of(name)
        stream = BENCHMARKS[f"split-{name}"].stream(images, seed=0, validation=True)
        assert stream.heads == (classes,) * tasks
        per_class = 50_000 // images.classes
        assert all(counts(task.train.targets) == [per_class * 9 // 10] * classes for task in stream)
        assert all(counts(task.validation.targets) == [per_class // 10] * classes for task in stream)
        assert stream[1].classes == tuple(range(classes, 2 * classes))

    @pytest.mark.parametrize("name", ["cifar10", "cifar100"])
    def test_cifar_pixels_are_normalised(self, name):
        images = images_of(name)
        x = images.scaling(torch.from_numpy(images.train.inputs[::10].copy()))
        torch.testing.assert_close(x.mean((0, 2, 3)), torch.zeros(3), atol=0.02, rtol=0)
        torch.testing.assert_close(x.std((0, 2, 3)), torch.ones(3), atol=0.02, rtol=0)

    def test_twenty_tasks_of_five_classes(self):
        images = images_of("cifar100")
        stream = SplitByClass("cifar100", Scenario.TASK, classes_per_task=5).stream(images, seed=0, validation=False)
        assert len(stream) == 20
        assert all(len(task.train) == 2_500 for task in stream)
