import copy
import itertools
import warnings
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.data import DataLoader, TensorDataset

import oracle
import zoo
from flat import flat, named
from fopng.core.likelihood import Bernoulli, Gaussian
from fopng.core.vector import Vector
from fopng.curvature.estimate import diagonal_fisher, full_fisher, sample_gradients
from fopng.curvature.sampling import LoaderStream, chunk_size, held_at_most
from fopng.gradients.per_sample import PerSampleGradients
from fopng.parallel.collectives import SINGLE_PROCESS
from fopng.parallel.sharded_sampling import ShardedSampler
from streams import BatchStream

EXACT = {"rtol": 1e-10, "atol": 1e-14}
PAPERS_KINDS = ("mlp", "cnn", "transformer", "recurrent", "multi_head")


def batches(case: zoo.Case, size: int) -> list:
    x, y = case.batch
    return list(zip(x.split(size), y.split(size), strict=True))


def close(actual: Vector, source: PerSampleGradients, expected: torch.Tensor) -> None:
    torch.testing.assert_close(flat(actual, source.layout.shapes), expected, **EXACT)


def draw(data: list, count: int, generator: torch.Generator) -> list:
    return list(ShardedSampler(generator, SINGLE_PROCESS, labels=False).choose(data, count))


@pytest.mark.parametrize("size", [1, 3, zoo.N])
@pytest.mark.parametrize("name", PAPERS_KINDS)
def test_diagonal_fisher_of_observed_labels(name, size):
    case = zoo.MODELS[name]()
    rows = oracle.sample_gradients(case.model, case.batch, zoo.N)
    source = PerSampleGradients(case.model)
    close(diagonal_fisher(source, LoaderStream(batches(case, size))), source, oracle.diagonal_fisher(rows))


@pytest.mark.parametrize("name", ["mlp", "transformer", "multi_head"])
def test_fisher_of_expected_labels(name):
    case = zoo.MODELS[name]()
    case.model.eval()
    expected = oracle.exact_fisher(*oracle.class_gradients(case.model, case.batch, zoo.N))
    source = PerSampleGradients(case.model)
    stream = LoaderStream([case.batch])
    torch.testing.assert_close(full_fisher(source, stream, labels="expected"), expected, **EXACT)
    close(diagonal_fisher(source, stream, labels="expected"), source, expected.diagonal())


def test_full_fisher_of_observed_labels():
    case = zoo.mlp()
    rows = oracle.sample_gradients(case.model, case.batch, zoo.N)
    actual = full_fisher(PerSampleGradients(case.model), LoaderStream(batches(case, 3)))
    torch.testing.assert_close(actual, oracle.empirical_fisher(rows), **EXACT)


def test_sampled_labels_approach_the_exact_fisher():
    case = zoo.case(nn.Linear(2, 3), 2)
    x = case.batch[0][:1].expand(20000, 2)
    data = [(x, torch.zeros(len(x)).long())]
    source = PerSampleGradients(case.model)

    def sampled() -> torch.Tensor:
        stream = LoaderStream(data, torch.Generator().manual_seed(0))
        return diagonal_fisher(source, stream, labels="sampled").flat()

    exact = diagonal_fisher(source, LoaderStream([(x[:1], data[0][1][:1])]), labels="expected").flat()
    torch.testing.assert_close(sampled(), exact, rtol=0.05, atol=1e-3)
    assert torch.equal(sampled(), sampled())


def test_sampled_labels_without_a_generator_differ_each_time():
    source, stream = PerSampleGradients(zoo.mlp().model), LoaderStream([zoo.mlp().batch])
    first, second = (diagonal_fisher(source, stream, labels="sampled").flat() for _ in range(2))
    assert not torch.equal(first, second)


@pytest.mark.parametrize(
    ("likelihood", "log_p"),
    [
        (Gaussian(0.5), lambda o, y: torch.distributions.Normal(o, 0.5).log_prob(y).sum()),
        (Bernoulli(), lambda o, y: torch.distributions.Bernoulli(logits=o).log_prob(y).sum()),
    ],
)
def test_other_likelihoods(likelihood, log_p):
    case = zoo.mlp()
    batch = case.batch[0], torch.randint(0, 2, (zoo.N, 3)).double()
    rows = oracle.sample_gradients(case.model, batch, zoo.N, log_p)
    source = PerSampleGradients(case.model, likelihood=likelihood)
    close(diagonal_fisher(source, LoaderStream([batch])), source, oracle.diagonal_fisher(rows))


def test_a_label_for_every_token():
    model = nn.Sequential(nn.Embedding(5, 4), nn.Linear(4, 5)).double()
    x = torch.randint(0, 5, (zoo.N, 3))
    rows = oracle.sample_gradients(model, (x, x), zoo.N)
    source = PerSampleGradients(model)
    close(diagonal_fisher(source, LoaderStream([(x, x)])), source, oracle.diagonal_fisher(rows))


def test_expected_labels_of_every_token():
    """The exact Fisher of two tokens, from all nine pairs of labels."""
    model = nn.Sequential(nn.Embedding(5, 2), nn.Linear(2, 3), nn.Tanh()).double()
    x = torch.randint(0, 5, (zoo.N, 2))
    expected = 0
    for k, pair in itertools.product(range(zoo.N), itertools.product(range(3), repeat=2)):
        log_p = oracle.log_likelihood(model(x[k : k + 1]), torch.tensor([pair]))
        g = oracle.flat_gradient(model, log_p)
        expected = expected + log_p.detach().exp() * torch.outer(g, g) / zoo.N
    actual = full_fisher(PerSampleGradients(model), LoaderStream([(x, torch.zeros_like(x))]), labels="expected")
    torch.testing.assert_close(actual, expected, **EXACT)


@pytest.mark.parametrize("lead", [(2,), (2, 2)])
@pytest.mark.parametrize("name", ["mlp", "cnn"])
def test_fishers_of_replicas(name, lead):
    from test_persample import replicas

    case = zoo.MODELS[name]()
    parameters, (x, y), rows = replicas(case, lead)
    source, data = PerSampleGradients(case.model), list(zip(x.split(3, len(lead)), y.split(3, len(lead)), strict=True))
    stream = BatchStream(data, named(parameters, source.layout.shapes))
    close(diagonal_fisher(source, stream), source, (rows**2).mean(-2))
    torch.testing.assert_close(full_fisher(source, stream), rows.mT @ rows / zoo.N, **EXACT)


def test_the_head_of_the_task_at_hand():
    case = zoo.multi_head()
    fisher = diagonal_fisher(PerSampleGradients(case.model), LoaderStream([case.batch]))
    assert bool((fisher["layers.heads.1.weight"] > 0).any())
    assert bool((fisher["layers.heads.0.weight"] == 0).all())


# Subsets


@given(st.integers(1, 12), st.integers(1, 5), st.integers(0, 99))
def test_a_subset_is_drawn_without_replacement(count, size, seed):
    data = list(torch.arange(10).split(size))
    drawn = torch.cat(draw(data, count, torch.Generator().manual_seed(seed))).tolist()
    assert len(drawn) == len(set(drawn)) == min(count, 10)
    again = torch.cat(draw(data, count, torch.Generator().manual_seed(seed))).tolist()
    assert drawn == again == sorted(drawn)


def test_every_sample_is_as_likely():
    generator = torch.Generator().manual_seed(0)
    data = list(torch.arange(6).split(4))
    seen = torch.zeros(6)
    for _ in range(600):
        seen[torch.cat(draw(data, 2, generator))] += 1
    assert bool(((seen - 200).abs() < 50).all())


def test_the_fisher_of_a_subset_is_that_of_its_samples():
    case = zoo.mlp()
    rows = oracle.sample_gradients(case.model, case.batch, zoo.N)
    chosen = torch.cat([b[1] for b in draw([(None, torch.arange(zoo.N))], 2, torch.Generator().manual_seed(3))])
    source, stream = PerSampleGradients(case.model), LoaderStream(batches(case, 3), torch.Generator().manual_seed(3))
    close(diagonal_fisher(source, stream, samples=2), source, oracle.diagonal_fisher(rows[chosen]))


def test_a_loader_is_walked_again_and_an_iterator_refused():
    case = zoo.mlp()
    loader = DataLoader(TensorDataset(*case.batch), batch_size=2)
    source = PerSampleGradients(case.model)
    whole = diagonal_fisher(source, LoaderStream([case.batch])).flat()
    close(diagonal_fisher(source, LoaderStream(loader), samples=zoo.N), source, whole)
    with pytest.raises(TypeError, match="walked more than once .*, got a .*Iter"):
        diagonal_fisher(source, LoaderStream(iter(loader)))


# Memory


class Peak(TorchDispatchMode):
    """The most bytes that were alive at once, of tensors made inside."""

    def __init__(self) -> None:
        super().__init__()
        self.alive: dict[int, tuple[StorageWeakRef, int]] = {}
        self.bytes = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        for tensor in result if isinstance(result, (tuple, list)) else [result]:
            if isinstance(tensor, torch.Tensor):
                storage = tensor.untyped_storage()
                self.alive[storage._cdata] = (StorageWeakRef(storage), storage.nbytes())
        self.alive = {key: held for key, held in self.alive.items() if not held[0].expired()}
        self.bytes = max(self.bytes, sum(size for _, size in self.alive.values()))
        return result


MEMORY_CASES = {
    "conv": lambda: zoo.case(
        nn.Sequential(
            nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 16, 3, padding=1), nn.Flatten(), nn.Linear(4096, 3)
        ),
        *(3, 16, 16),
    ),
    "mlp": lambda: zoo.case(nn.Sequential(nn.Linear(200, 100), nn.ReLU(), nn.Linear(100, 3)), 200),
    "sequence": lambda: zoo.case(
        nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64), nn.Flatten(), nn.Linear(1024, 3)), 16, 64
    ),
    "automatic": lambda: zoo.case(nn.Sequential(nn.Flatten(), nn.PReLU(3000), nn.Linear(3000, 3)), 3000),
    "embedding": lambda: zoo.tokens(nn.Sequential(nn.Embedding(500, 16), nn.Flatten(), nn.Linear(96, 3)), words=500),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", MEMORY_CASES)
def test_the_memory_limit_is_kept(name, dtype):
    case = MEMORY_CASES[name]()
    case.model.to(dtype)
    x, y = (t.repeat(50, *[1] * (t.dim() - 1)) for t in case.batch)
    x = x.to(dtype) if x.is_floating_point() else x
    source = PerSampleGradients(case.model)
    source.bytes_per_sample((x, y))
    limit, fixed = 20 * 2**20, 4 * source.layout.size * 8
    with Peak() as peak:
        actual = diagonal_fisher(source, LoaderStream([(x, y)], memory_limit=limit))
    assert peak.bytes <= limit + fixed
    expected = diagonal_fisher(source, LoaderStream([(x, y)]))
    torch.testing.assert_close(actual.flat(), expected.flat(), rtol=1e-4, atol=1e-8)


def test_less_memory_means_smaller_chunks():
    case, sizes = zoo.mlp(), []
    x, y = (t.repeat(16, *[1] * (t.dim() - 1)) for t in case.batch)
    case.model.register_forward_hook(lambda module, args, output: sizes.append(len(output)))
    source = PerSampleGradients(case.model)
    room = source.bytes_per_sample((x, y))
    sizes.clear()
    diagonal_fisher(source, LoaderStream([(x, y)], memory_limit=10 * room))
    assert max(sizes) == 10
    assert sum(sizes) - 5 == len(x)


def test_a_large_gpu_takes_more_samples_at_a_time(monkeypatch):
    """A 64th of its memory, and no less than on a CPU; nor does a cache limit the number of samples there."""
    gpu, cpu = torch.device("cuda"), torch.device("cpu")
    sizes = {}
    for gigabytes in (8, 128):
        card = SimpleNamespace(total_memory=gigabytes * 2**30)
        monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device, card=card: card)
        sizes[gigabytes] = chunk_size(2**10, gpu), chunk_size(2**20, gpu)
    assert sizes == {8: (2**18, 256), 128: (2**21, 2048)}
    assert (chunk_size(2**10, cpu), chunk_size(2**20, cpu), chunk_size(2**40, gpu)) == (1024, 256, 1)
    assert [held_at_most(gpu, lanes) // 2**20 for lanes in (1, 4, 16, 1000)] == [2048, 2048, 512, 256]
    assert held_at_most(cpu, 16) == 256 * 2**20


def test_the_full_fisher_refuses_what_does_not_fit():
    source = PerSampleGradients(nn.Linear(100, 10))
    with pytest.raises(ValueError, match="for 1010 parameters. Use the diagonal Fisher"):
        full_fisher(source, LoaderStream([], memory_limit=1000))


# Stored gradients


@pytest.mark.parametrize(
    ("score", "form"), [("ground-truth", oracle.ground_truth_logit), ("average", oracle.average_logit)]
)
def test_stored_gradients_are_those_of_drawn_samples(score, form):
    case = zoo.cnn()
    rows = oracle.sample_gradients(case.model, case.batch, zoo.N, form)
    chosen = torch.cat([b[1] for b in draw([(None, torch.arange(zoo.N))], 3, torch.Generator().manual_seed(3))])
    source, stream = PerSampleGradients(case.model), LoaderStream(batches(case, 2), torch.Generator().manual_seed(3))
    blocks = [flat(b.rows(), source.layout.shapes) for b in sample_gradients(source, stream, 3, score=score)]
    torch.testing.assert_close(torch.cat(blocks), rows[chosen], **EXACT)


def test_all_samples_when_there_are_no_more():
    case = zoo.mlp()
    blocks = sample_gradients(PerSampleGradients(case.model), LoaderStream(batches(case, 2)), 99)
    assert sum(block.count for block in blocks) == zoo.N


@pytest.mark.parametrize(
    "estimate", [diagonal_fisher, full_fisher, lambda source, stream: sample_gradients(source, stream, 3)]
)
def test_no_samples(estimate):
    with pytest.raises(ValueError, match="Expected at least one sample"):
        estimate(PerSampleGradients(zoo.mlp().model), LoaderStream([]))


def test_a_number_of_samples_below_one():
    with pytest.raises(ValueError, match="at least 1, got 0"):
        diagonal_fisher(PerSampleGradients(zoo.mlp().model), LoaderStream([zoo.mlp().batch]), samples=0)


@pytest.mark.parametrize("estimate", [diagonal_fisher, full_fisher])
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_fisher_that_is_not_finite_names_the_parameters(estimate, value):
    case = zoo.mlp()
    case.batch[0][2, 1] = value
    with pytest.raises(ValueError, match=r"finite Fisher, got NaN or infinity in \['0.weight'"):
        estimate(PerSampleGradients(case.model), LoaderStream([case.batch]))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", ["mlp", "cnn", "transformer", "recurrent"])
def test_low_precision(name, dtype):
    case = zoo.MODELS[name]()
    rows = oracle.sample_gradients(case.model, case.batch, zoo.N)
    low = copy.deepcopy(case.model).to(dtype)
    x, y = case.batch
    source, x = PerSampleGradients(low), x.to(dtype) if x.is_floating_point() else x
    actual = flat(diagonal_fisher(source, LoaderStream([(x, y)])), source.layout.shapes)
    assert actual.dtype == torch.float32
    error = (actual - oracle.diagonal_fisher(rows)).norm() / oracle.diagonal_fisher(rows).norm()
    assert float(error) < {torch.float32: 1e-4, torch.bfloat16: 0.15, torch.float16: 0.02}[dtype]


def test_small_gradients_of_half_precision_do_not_vanish():
    """1e-4 squared is nothing in half precision."""
    model = nn.Sequential(nn.PReLU(4, init=0.5), nn.Linear(4, 2)).half()
    x = torch.full((3, 4), -1e-3).half()
    fisher = diagonal_fisher(PerSampleGradients(model), LoaderStream([(x, torch.zeros(3).long())]))
    assert bool((fisher["0.weight"] > 0).all())


# Against BackPACK


@pytest.mark.parametrize("name", ["mlp", "cnn"])
def test_diagonal_fisher_agrees_with_backpack(name):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from backpack import backpack, extend
        from backpack.extensions import BatchGrad, SumGradSquared

    if name == "mlp":
        case = zoo.mlp()
    else:
        case = zoo.case(
            nn.Sequential(
                *(nn.Conv2d(2, 4, 3, padding=1), nn.ReLU(), nn.Conv2d(4, 4, 2, stride=2, groups=2), nn.ReLU()),
                *(nn.MaxPool2d(2), nn.Flatten(), nn.Linear(4, 6), nn.Sigmoid(), nn.Linear(6, 3)),
            ),
            *(2, 5, 5),
        )
    source = PerSampleGradients(case.model)
    fisher = diagonal_fisher(source, LoaderStream([case.batch]))
    rows = flat(next(source.gradients(case.batch, "log-likelihood")).rows(), source.layout.shapes)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model, loss = extend(copy.deepcopy(case.model)), extend(nn.CrossEntropyLoss(reduction="sum"))
        with backpack(SumGradSquared(), BatchGrad()):
            loss(model(case.batch[0]), case.batch[1]).backward()
    for key, parameter in model.named_parameters():
        torch.testing.assert_close(fisher[key], parameter.sum_grad_squared / zoo.N, msg=key, **EXACT)
    theirs = torch.cat([-p.grad_batch.flatten(1) for p in model.parameters()], 1)
    torch.testing.assert_close(rows, theirs, **EXACT)
