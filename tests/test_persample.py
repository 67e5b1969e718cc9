import copy

import pytest
import torch

import oracle
import zoo
from fopng.persample import GradientSource

SCORES = {
    "ground-truth": oracle.ground_truth_logit,
    "average": oracle.average_logit,
    "log-likelihood": oracle.log_likelihood,
    "observed": oracle.log_likelihood,
}
EXACT = {"rtol": 1e-10, "atol": 1e-12}


def dense(case: zoo.Case, kind: str = "log-likelihood", **options) -> torch.Tensor:
    source = GradientSource(case.model, predict=case.ask)
    return next(source.gradients(case.batch, kind, **options)).dense()


@pytest.mark.parametrize("name", [*zoo.MODELS, *zoo.UNMAPPED])
def test_gradients_are_those_of_each_sample_alone(name):
    case = (zoo.MODELS | zoo.UNMAPPED)[name]()
    expected = oracle.sample_gradients(case.model, copy.deepcopy(case.batch), zoo.N, ask=case.ask)
    torch.testing.assert_close(dense(case), expected, **EXACT)
    assert bool(expected.abs().sum() > 0)


@pytest.mark.parametrize("kind", SCORES)
def test_every_score(kind):
    case = zoo.cnn()
    expected = oracle.sample_gradients(case.model, case.batch, zoo.N, SCORES[kind])
    torch.testing.assert_close(dense(case, kind), expected, **EXACT)


def replicas(case: zoo.Case, lead: tuple[int, ...]):
    """Parameters `[*lead, p]`, a batch `[*lead, n, ...]` and the oracle's gradients of each replica."""
    count = torch.Size(lead).numel()
    flat = oracle.flat_parameters(case.model)
    parameters = flat + 0.1 * torch.randn(count, len(flat), dtype=flat.dtype)
    batches = [_shuffled(case.batch, torch.randperm(zoo.N)) for _ in range(count)]
    rows = [
        oracle.sample_gradients(
            oracle.with_parameters(copy.deepcopy(case.model), p), copy.deepcopy(b), zoo.N, ask=case.ask
        )
        for p, b in zip(parameters, batches, strict=True)
    ]
    return parameters.unflatten(0, lead), _stacked(batches, lead), torch.stack(rows).unflatten(0, lead)


def _shuffled(batch, order):
    if isinstance(batch, dict):
        return {k: _shuffled(v, order) for k, v in batch.items()}
    return (
        tuple(_shuffled(v, order) for v in batch)
        if isinstance(batch, tuple)
        else batch[order]
        if isinstance(batch, torch.Tensor)
        else batch
    )


def _stacked(batches, lead):
    first = batches[0]
    if isinstance(first, dict):
        return {k: _stacked([b[k] for b in batches], lead) for k in first}
    if isinstance(first, tuple):
        return tuple(_stacked(list(column), lead) for column in zip(*batches, strict=True))
    return torch.stack(batches).unflatten(0, lead) if isinstance(first, torch.Tensor) else first


@pytest.mark.parametrize("lead", [(3,), (2, 2)])
@pytest.mark.parametrize("name", zoo.MODELS)
def test_gradients_of_replicas(name, lead):
    case = zoo.MODELS[name]()
    parameters, batch, expected = replicas(case, lead)
    actual = dense(zoo.Case(case.model, batch, case.ask), parameters=parameters)
    torch.testing.assert_close(actual, expected, **EXACT)


@pytest.mark.parametrize("name", zoo.UNMAPPED)
def test_replicas_that_torch_cannot_map_name_the_model(name):
    case = zoo.UNMAPPED[name]()
    parameters, batch, _ = replicas(case, (2,))
    with pytest.raises(RuntimeError, match=f"{type(case.model).__name__} cannot be asked for 2 replicas at once"):
        dense(zoo.Case(case.model, batch, case.ask), parameters=parameters)
