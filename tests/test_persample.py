import copy
import itertools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.utils.checkpoint import checkpoint

import oracle
import zoo
from flat import flat, named
from fopng.core.layout import ParamLayout
from fopng.gradients.layers import SampleGradients
from fopng.gradients.per_sample import PerSampleGradients

SCORES = {
    "ground-truth": oracle.ground_truth_logit,
    "average": oracle.average_logit,
    "log-likelihood": oracle.log_likelihood,
    "observed": oracle.log_likelihood,
}
EXACT = {"rtol": 1e-10, "atol": 1e-12}


def written(source: PerSampleGradients, gradients: SampleGradients) -> torch.Tensor:
    """The gradients written out, `[*lead, n, p]`."""
    return flat(gradients.rows(), source.layout.shapes)


def dense(case: zoo.Case, kind: str = "log-likelihood", parameters: torch.Tensor | None = None) -> torch.Tensor:
    source = PerSampleGradients(case.model, predict=case.ask)
    theta = None if parameters is None else named(parameters, source.layout.shapes)
    return written(source, next(source.gradients(case.batch, kind, parameters=theta)))


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


@pytest.mark.parametrize("name", [*zoo.MODELS, *zoo.UNMAPPED])
def test_a_model_keeps_its_own_parameters(name):
    case = (zoo.MODELS | zoo.UNMAPPED)[name]()
    before = [*map(id, case.model.parameters()), *map(id, case.model.buffers())]
    dense(case)
    assert [*map(id, case.model.parameters()), *map(id, case.model.buffers())] == before


# What a model may be like


def test_a_layer_may_be_asked_twice_in_different_ways():
    """Once with a batch of vectors, once with sequences: one site, two ways."""
    shared = nn.Linear(5, 5)
    model = zoo.Answers(
        lambda m, x: m["head"](m["shared"](m["shared"](x).mean(1)).tanh()), shared=shared, head=nn.Linear(5, 3)
    )
    case = zoo.case(model, 3, 5)
    torch.testing.assert_close(dense(case), oracle.sample_gradients(case.model, case.batch, zoo.N), **EXACT)


def test_a_trial_that_does_not_reach_every_expert():
    """Most samples go to one expert, so that a few of them need not show the other."""
    case = zoo.mixture()
    x = torch.randn(40, 5, dtype=torch.float64)
    case.model[0].weight.data[0] = torch.eye(5)[0]
    case.model[0].bias.data[0] = 0
    x[:, 0] = -1
    x[1, 0] = x[3, 0] = 1
    case = zoo.Case(case.model, (x, torch.arange(40) % 3))
    torch.testing.assert_close(dense(case), oracle.sample_gradients(case.model, case.batch, 40), **EXACT)


def test_a_second_task_through_another_head():
    case = zoo.multi_head()
    model = case.model
    source = PerSampleGradients(
        model, predict=lambda m, b: (m.layers["heads"][b[2]](m.layers["trunk"](b[0]).relu()), b[1])
    )
    for head in (0, 2, 0):
        model.how = lambda m, x, head=head: m["heads"][head](m["trunk"](x).relu())
        (found,) = source.gradients((*case.batch, head), "log-likelihood")
        torch.testing.assert_close(written(source, found), oracle.sample_gradients(model, case.batch, zoo.N), **EXACT)


def test_outputs_that_reach_no_trainable_parameter_have_zero_gradients():
    model = nn.ModuleDict({"used": nn.Linear(5, 3), "other": nn.Linear(5, 3)}).double()
    model["used"].requires_grad_(False)
    case = zoo.Case(model, zoo.mlp().batch, lambda m, b: (m["used"](b[0]), b[1]))
    found = dense(case)
    assert torch.equal(found, torch.zeros(zoo.N, 18, dtype=torch.float64))
    replicas = {"parameters": torch.zeros(2, 18, dtype=torch.float64)}
    both = zoo.Case(model, tuple(torch.stack([t, t]) for t in case.batch), case.ask)
    assert torch.equal(dense(both, **replicas), torch.zeros(2, zoo.N, 18, dtype=torch.float64))


def test_part_of_the_parameters():
    case = zoo.mlp()
    everything = oracle.sample_gradients(case.model, case.batch, zoo.N)
    layout = ParamLayout.of(case.model)
    chosen = ParamLayout({name: layout.shapes[name] for name in ("4.bias", "2.weight", "0.bias")})
    source = PerSampleGradients(case.model, layout=chosen)
    (found,) = source.gradients(case.batch, "log-likelihood")
    expected = named(everything, layout.shapes).only(chosen.names)
    torch.testing.assert_close(written(source, found), flat(expected, chosen.shapes), **EXACT)


def test_hooks_of_the_user_are_obeyed():
    case = zoo.mlp()
    case.model[0].register_forward_hook(lambda module, args, output: output * 2)
    case.model[2].register_forward_pre_hook(lambda module, args: (args[0] + 1,))
    torch.testing.assert_close(dense(case), oracle.sample_gradients(case.model, case.batch, zoo.N), **EXACT)


def test_without_gradients_around():
    case = zoo.mlp()
    expected = oracle.sample_gradients(case.model, case.batch, zoo.N)
    for around in (torch.no_grad(), torch.inference_mode()):
        with around:
            torch.testing.assert_close(dense(case).clone(), expected, **EXACT)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", ["mlp", "cnn", "recurrent", "custom", "tied_linears"])
def test_half_precision_models_give_single_precision_gradients(name, dtype):
    case = zoo.MODELS[name]()
    expected = oracle.sample_gradients(case.model, case.batch, zoo.N, oracle.ground_truth_logit)
    low = zoo.Case(case.model.to(dtype), (case.batch[0].to(dtype), case.batch[1]), case.ask)
    found = dense(low, "ground-truth")
    assert found.dtype == torch.float32
    assert float((found - expected).norm() / expected.norm()) < 0.1


def test_a_model_that_insists_on_its_own_precision():
    class Single(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Linear(5, 4), nn.Linear(4, 3)

        def forward(self, x):
            return self.b(self.a(x).float().to(torch.float32) @ torch.eye(4))

    case = zoo.Case(Single(), (torch.randn(zoo.N, 5), zoo.labels()))
    torch.testing.assert_close(
        dense(case), oracle.sample_gradients(case.model, case.batch, zoo.N), rtol=1e-4, atol=1e-5
    )


def test_a_batch_of_one():
    case = zoo.cnn()
    one = oracle.one_sample(case.batch, 2)
    torch.testing.assert_close(dense(zoo.Case(case.model, one)), oracle.sample_gradients(case.model, one, 1), **EXACT)


def test_predict_without_targets():
    case = zoo.mlp()
    found = dense(zoo.Case(case.model, case.batch, lambda m, b: (m(b[0]), None)), "average")
    expected = oracle.sample_gradients(case.model, case.batch, zoo.N, oracle.average_logit)
    torch.testing.assert_close(found, expected, **EXACT)


def test_small_gradients_are_proven_by_their_own_scale():
    """A module that is wrong where its gradient is a millionth of the others' does not slip through."""

    class Quiet(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(5, 5)

        def forward(self, x):
            # the second use of the weight is not a call of the layer
            return x + 1e-9 * (self.layer(x) + nn.functional.linear(x.tanh(), self.layer.weight))

    case = zoo.case(nn.Sequential(Quiet(), nn.Linear(5, 3)), 5)
    expected = oracle.sample_gradients(case.model, case.batch, zoo.N)
    torch.testing.assert_close(dense(case)[:, :30], expected[:, :30], rtol=1e-6, atol=1e-20)


@pytest.mark.parametrize(
    "name", ["mlp", "cnn", "multi_head", "residual", "used_twice", "tied", "tied_linears", "folded"]
)
def test_closed_forms_hold_without_help(name):
    """No gradient had to be taken through the whole model."""
    case = zoo.MODELS[name]()
    source = PerSampleGradients(case.model, predict=case.ask)
    list(source.gradients(case.batch, "observed"))
    assert not source._verifier.knowledge.alone


def test_a_module_that_is_later_sent_a_part_of_the_samples():
    class Adapter(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.extra = nn.Linear(5, 3)

        def forward(self, x):
            out, chosen = x[:, :3].clone(), x[:, 0] > 0
            out[chosen] = self.extra(x[chosen])
            return out

    model = Adapter().double()
    x, y = torch.randn(zoo.N, 5).double(), zoo.labels()
    source = PerSampleGradients(model)
    for first in (torch.ones(zoo.N), torch.tensor([1.0, -1, 1, -1])):
        x[:, 0] = first
        (found,) = source.gradients((x, y), "observed")
        torch.testing.assert_close(written(source, found), oracle.sample_gradients(model, (x, y), zoo.N), **EXACT)


# Nothing is left on the model


def traces(model: nn.Module) -> list:
    """All that a visitor could change: modes, hooks, attributes, gradients, values, random state."""
    modules = [(m.training, {k: _held(v) for k, v in vars(m).items()}) for m in model.modules()]
    tensors = [*model.parameters(), *model.buffers()]
    values = [(id(t), t.requires_grad, t.grad, t.detach().clone().tolist()) for t in tensors]
    return [
        modules,
        values,
        torch.get_rng_state().tolist(),
        torch.backends.mha.get_fastpath_enabled(),
        torch.is_grad_enabled(),
    ]


def _held(value) -> object:
    if isinstance(value, dict):
        return {key: _held(own) for key, own in value.items()}
    return [_held(own) for own in value] if isinstance(value, (list, tuple)) else id(value)


class Counting(nn.Module):
    """Counts its calls in a buffer, drops out, and normalises."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Linear(5, 6), nn.BatchNorm1d(6), nn.ReLU(inplace=True), nn.Dropout(0.5), nn.Linear(6, 3)
        )
        self.register_buffer("calls", torch.zeros((), dtype=torch.long))

    def forward(self, x):
        self.calls += 1
        return self.body(x)


@pytest.mark.parametrize("name", ["counting", "transformer", "parametrised", "class_token", "lstm", "tied"])
def test_nothing_is_left_on_the_model(name):
    case = zoo.case(Counting(), 5) if name == "counting" else (zoo.MODELS | zoo.UNMAPPED)[name]()
    case.model.train()
    next(case.model.modules()).register_forward_hook(lambda *_: None)
    next(case.model.children()).eval()
    before = traces(case.model)
    dense(case, "expected")
    assert traces(case.model) == before


def test_recurrent_layers_learn_on_after_they_were_asked():
    case = zoo.lstm()
    dense(case)
    case.model(case.batch[0]).sum().backward()
    assert all(p.grad is not None for p in case.model.parameters())


def test_nothing_is_left_by_replicas():
    case = zoo.case(Counting(), 5)
    parameters, batch, _ = replicas(case, (2,))
    case.model.train()
    before = traces(case.model)
    dense(zoo.Case(case.model, batch), parameters=parameters)
    assert traces(case.model) == before


@pytest.mark.parametrize("call", [1, 2, 3, 4])
def test_nothing_is_left_when_the_model_fails_half_way(call):
    case = zoo.case(Counting(), 5)
    seen = []

    def fail(module, args):
        seen.append(module)
        if len(seen) == call:
            raise KeyError("half way")

    case.model.body[4].register_forward_pre_hook(fail)
    case.model.train()
    source, before = PerSampleGradients(case.model), traces(case.model)
    if call < 4:
        with pytest.raises(KeyError, match="half way"):
            next(source.gradients(case.batch, "observed"))
    else:
        next(source.gradients(case.batch, "observed"))
    assert traces(case.model) == before


def test_nothing_is_left_when_the_reader_stops_half_way():
    case = zoo.case(Counting(), 5)
    case.model.train()
    before = traces(case.model)
    reader = PerSampleGradients(case.model).gradients(case.batch, "expected")
    next(reader)
    assert traces(case.model) == before
    reader.close()
    assert traces(case.model) == before


def test_the_callers_batch_is_left_alone():
    case = zoo.mutates_its_input()
    before = case.batch[0].clone()
    dense(case)
    assert torch.equal(case.batch[0], before)


# Errors


class Noisy(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(5, 3)

    def forward(self, x):
        return self.layer(x * torch.rand(len(x), 1, dtype=x.dtype))


class Mixing(Noisy):
    def forward(self, x):
        return self.layer(x - x.mean(0))


class Squeezing(Noisy):
    def forward(self, x):
        return self.layer(x).squeeze(0)


class Merging(Noisy):
    def forward(self, x):
        return self.layer(x).sum(0)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (Noisy(), "gradients of Noisy cannot be found: it answers a sample differently.*Make it deterministic"),
        (Mixing(), "gradients of Mixing cannot be found: it answers a sample differently among others"),
        (Merging(), r"Expected outputs with a row a sample \(\d samples\), got shape \(3,\) from Merging"),
    ],
)
def test_models_without_a_gradient_for_each_sample(model, message):
    with pytest.raises(ValueError, match=message):
        dense(zoo.case(model, 5))


def test_a_model_that_squeezes_a_batch_of_one_is_told_so():
    case = zoo.case(Squeezing(), 5)
    with pytest.raises(ValueError, match=r"1 samples\), got shape \(3,\) from Squeezing"):
        dense(zoo.Case(case.model, oracle.one_sample(case.batch, 0)))


def test_activation_checkpointing_is_told_apart():
    model = zoo.Answers(
        lambda m, x: m["head"](checkpoint(m["body"], x, use_reentrant=False)),
        body=nn.Sequential(nn.Linear(5, 6), nn.Tanh(), nn.Linear(6, 6)),
        head=nn.Linear(6, 3),
    )
    with pytest.raises(ValueError, match="Turn checkpointing off in eval mode"):
        dense(zoo.case(model, 5))


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
def test_a_scripted_module_is_named():
    scripted = torch.jit.script(nn.Linear(5, 3))
    with pytest.raises(TypeError, match="Module '0' is a ScriptModule.*Pass the module it was made from"):
        PerSampleGradients(nn.Sequential(scripted))


def test_an_empty_batch():
    case = zoo.mlp()
    with pytest.raises(ValueError, match="Expected a batch with samples, got an empty one"):
        dense(zoo.Case(case.model, (case.batch[0][:0], case.batch[1][:0])))


def test_outputs_that_are_no_tensor():
    case = zoo.mlp()
    with pytest.raises(TypeError, match=r"Expected predict to return \(outputs, targets\).*got a dict"):
        dense(zoo.Case(case.model, case.batch, lambda m, b: ({"logits": m(b[0])}, b[1])))


def test_parameters_that_are_not_finite_are_named():
    case = zoo.mlp()
    case.model[2].bias.data[0] = float("nan")
    with pytest.raises(ValueError, match=r"got NaN or infinity in \['0.weight'"):
        dense(case)


@given(
    widths=st.lists(st.integers(1, 6), min_size=2, max_size=4),
    bias=st.booleans(),
    positions=st.sampled_from([(), (1,), (3,), (2, 2)]),
    n=st.integers(1, 6),
    seed=st.integers(0, 999),
)
def test_any_mlp_on_any_positions(widths, bias, positions, n, seed):
    torch.manual_seed(seed)
    layers = [nn.Linear(i, o, bias=bias) for i, o in itertools.pairwise(widths)]
    model = nn.Sequential(*itertools.chain.from_iterable((layer, nn.Tanh()) for layer in layers)).double()
    batch = torch.randn(n, *positions, widths[0]).double(), torch.randint(0, widths[-1], (n, *positions))
    found = dense(zoo.Case(model, batch))
    torch.testing.assert_close(found, oracle.sample_gradients(model, batch, n), **EXACT)
