"""Weights are captured wherever they are used: each factor against a twin made of plain layers, asked one sample at a time."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils.parametrizations import weight_norm

import fopng
import oracle
import zoo
from fopng.core.vector import Vector
from fopng.curvature.estimate import input_moments, layer_moments
from fopng.curvature.factors import written_out
from fopng.curvature.kronecker import KroneckerOperator, LayerBasis
from fopng.curvature.sampling import LoaderStream
from fopng.gradients.forms import Form
from fopng.gradients.per_sample import PerSampleGradients

N = 4
EXACT = {"rtol": 1e-8, "atol": 1e-12}


def moments_of(model, batch, ask=oracle.ask_pair):
    return layer_moments(PerSampleGradients(model, predict=ask), LoaderStream([batch]), signals="observed")


def backs(model, batch, ask=oracle.ask_pair):
    """The scores of the data's labels at the outputs."""
    outputs, y = ask(model, batch)
    return [(F.one_hot(y, outputs.shape[-1]) - outputs.softmax(-1)).detach()]


def expected(twin, layer, batch):
    """A and G of a layer of the twin, one sample at a time."""
    return oracle.moments(twin, batch, backs(twin, batch))[0][layer]


class HeldAs(nn.Module):
    """A layer's weight as `[in, out]`, as GPT-2's `Conv1D` has it."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(linear.weight.detach().T.contiguous()), nn.Parameter(linear.bias.detach())

    def forward(self, x):
        return torch.addmm(self.bias, x.reshape(-1, x.shape[-1]), self.weight).view(*x.shape[:-1], -1)


class Used(nn.Module):
    """Something in the middle, pooled over positions, and a head."""

    def __init__(self, middle: nn.Module, how, width: int) -> None:
        super().__init__()
        self.middle, self.head, self.how = middle, nn.Linear(width, 3), how
        self.double()

    def forward(self, x):
        return self.head(self.how(self.middle, x).tanh().flatten(1, -2).mean(1))


def batch_of(*shape):
    return torch.randn(N, *shape).double(), torch.arange(N) % 3


def same(left, right):
    for name in ("inputs", "signals"):
        torch.testing.assert_close(written_out(getattr(left, name)), getattr(right, name), **EXACT)


def check(found, A, G):
    torch.testing.assert_close(written_out(found.inputs), A, **EXACT)
    torch.testing.assert_close(written_out(found.signals), G, **EXACT)


FUNCTIONAL = {
    "a module": lambda m, x: m(x),
    "a function": lambda m, x: F.linear(x, m.weight, m.bias),
    "addmm": lambda m, x: torch.stack([torch.addmm(m.bias, own, m.weight.t()) for own in x.transpose(0, 1)], 1),
    "half of it and the other half": lambda m, x: torch.cat(
        [F.linear(x, w, b) for w, b in zip(m.weight.chunk(2), m.bias.chunk(2), strict=True)], -1
    ),
}


@pytest.mark.parametrize("name", FUNCTIONAL)
def test_a_weight_is_captured_whoever_uses_it(name):
    layer, batch = nn.Linear(5, 4), batch_of(3, 5)
    model, twin = Used(layer, FUNCTIONAL[name], 4), Used(layer, FUNCTIONAL["a module"], 4)
    twin.head.load_state_dict(model.head.state_dict())
    found = moments_of(model, batch).layers["middle.weight", "middle.bias"]
    A, G = expected(twin, layer, batch)
    if name == "half of it and the other half":
        # the halves are two uses of one weight, each with signals of its own
        G = torch.block_diag(G[:2, :2], G[2:, 2:])
        check(found, 2 * A, G / 2 * expected_trace(model, batch, "middle") / (A.trace() * G.trace()))
    else:
        check(found, A, G)


def expected_trace(model, batch, prefix, ask=oracle.ask_pair):
    """The trace of the exact Fisher of some parameters."""
    squares = oracle.sample_gradients(model, batch, N, ask=ask).square().mean(0)
    sizes = [(name, p.numel()) for name, p in model.named_parameters() if p.requires_grad]
    parts = zip((name for name, _ in sizes), squares.split([size for _, size in sizes]), strict=True)
    return sum(part.sum() for name, part in parts if name.startswith(prefix))


def test_a_weight_held_the_other_way_round_has_the_same_fisher():
    layer, batch = nn.Linear(5, 4), batch_of(3, 5)
    layer.double()
    plain, turned = Used(layer, lambda m, x: m(x), 4), Used(HeldAs(layer), lambda m, x: m(x), 4)
    turned.head.load_state_dict(plain.head.state_dict())
    names = "middle.weight", "middle.bias"
    left, right = (moments_of(model, batch).layers[names] for model in (turned, plain))
    same(left, right)
    assert left.form.transposed
    v = torch.randn(4, 5).double(), torch.randn(4).double()
    products = [
        KroneckerOperator({names: LayerBasis.of(own, bias=True, rank=3)}, Vector({}))(
            Vector(dict(zip(names, (v[0].T if own is left else v[0], v[1]), strict=True)))
        )
        for own in (left, right)
    ]
    torch.testing.assert_close(products[0][names[0]].T, products[1][names[0]], **EXACT)
    torch.testing.assert_close(products[0][names[1]], products[1][names[1]], **EXACT)
    inputs = [input_moments(PerSampleGradients(model), LoaderStream([batch]))[names] for model in (turned, plain)]
    torch.testing.assert_close(inputs[0].moment, inputs[1].moment, **EXACT)


def attention(m, x):
    return m(x, x, x, need_weights=False)[0]


class SplitAttention(nn.Module):
    """The same attention, of plain layers."""

    def __init__(self, packed: nn.MultiheadAttention) -> None:
        super().__init__()
        size = packed.embed_dim
        self.project, self.out = nn.Linear(size, 3 * size), nn.Linear(size, size)
        self.project.weight, self.project.bias = packed.in_proj_weight, packed.in_proj_bias
        self.out.load_state_dict(packed.out_proj.state_dict())
        self.heads = packed.num_heads

    def forward(self, x):
        q, k, v = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in self.project(x).chunk(3, -1))
        scores = (q @ k.mT / q.shape[-1] ** 0.5).softmax(-1) @ v
        return self.out(scores.transpose(1, 2).flatten(2))


def test_packed_attention():
    packed, batch = nn.MultiheadAttention(8, 2, batch_first=True), batch_of(3, 8)
    model, twin = Used(packed, attention, 8), Used(SplitAttention(packed), lambda m, x: m(x), 8)
    twin.head.load_state_dict(model.head.state_dict())
    found = moments_of(model, batch).layers
    check(found["middle.in_proj_weight", "middle.in_proj_bias"], *expected(twin, twin.middle.project, batch))
    check(found["middle.out_proj.weight", "middle.out_proj.bias"], *expected(twin, twin.middle.out, batch))


class Unrolled(nn.Module):
    """An LSTM of plain layers."""

    def __init__(self, fused: nn.LSTM) -> None:
        super().__init__()
        self.read, self.keep = (
            nn.Linear(size, 4 * fused.hidden_size) for size in (fused.input_size, fused.hidden_size)
        )
        self.read.weight, self.read.bias = fused.weight_ih_l0, fused.bias_ih_l0
        self.keep.weight, self.keep.bias = fused.weight_hh_l0, fused.bias_hh_l0

    def forward(self, x):
        h = c = x.new_zeros(len(x), self.keep.in_features)
        found = []
        for own in x.unbind(1):
            i, f, g, o = (self.read(own) + self.keep(h)).chunk(4, -1)
            c = f.sigmoid() * c + i.sigmoid() * g.tanh()
            h = o.sigmoid() * c.tanh()
            found.append(h)
        return torch.stack(found, 1)


def test_recurrent_weights_over_time():
    fused, batch = nn.LSTM(4, 5, batch_first=True), batch_of(3, 4)
    model, twin = Used(fused, lambda m, x: m(x)[0], 5), Used(Unrolled(fused), lambda m, x: m(x), 5)
    twin.head.load_state_dict(model.head.state_dict())
    found = moments_of(model, batch).layers
    for kind, layer in (("ih", twin.middle.read), ("hh", twin.middle.keep)):
        check(found[f"middle.weight_{kind}_l0", f"middle.bias_{kind}_l0"], *expected(twin, layer, batch))


RECURRENT = {
    "lstm": lambda: nn.LSTM(4, 5, 2, bidirectional=True, batch_first=True),
    "projected": lambda: nn.LSTM(4, 5, 2, proj_size=3, batch_first=True),
    "without bias": lambda: nn.LSTM(4, 5, bias=False, batch_first=True),
    "gru": lambda: nn.GRU(4, 5, 2, bidirectional=True, batch_first=True),
    "rnn": lambda: nn.RNN(4, 5, 2, batch_first=True),
    "relu": lambda: nn.RNN(4, 5, nonlinearity="relu", bidirectional=True, batch_first=True),
}


@pytest.mark.parametrize("name", RECURRENT)
def test_recurrent_layers_are_run_unfused_to_the_same_outputs(name):
    layer, batch = RECURRENT[name](), batch_of(6, 4)
    width = layer.double()(batch[0])[0].shape[-1]
    model = Used(layer, lambda m, x: m(x)[0], width)
    source = PerSampleGradients(model)
    found = layer_moments(source, LoaderStream([batch]), signals="observed")
    assert not source._verifier.knowledge.alone
    assert {name for names in found.layers for name in names} == set(source.layout.names)


def test_sequences_of_unequal_lengths_are_packed():
    case = zoo.packed()
    found = moments_of(case.model, case.batch, case.ask)
    total = sum(own.traces() for names, own in found.layers.items() if names[0].startswith("rnn"))
    assert {name for names in found.layers for name in names} == {name for name, _ in case.model.named_parameters()}
    assert total > 0


class OneHot(nn.Module):
    """A table as a layer that is given which row as zeros and a one."""

    def __init__(self, table: nn.Embedding) -> None:
        super().__init__()
        self.layer = nn.Linear(*table.weight.shape, bias=False)
        with torch.no_grad():
            self.layer.weight.copy_(table.weight.T)

    def forward(self, x):
        return self.layer(F.one_hot(x, self.layer.in_features).double())


def test_a_table_has_counts_for_its_inputs():
    table, batch = nn.Embedding(7, 4), (torch.randint(0, 7, (N, 5)), torch.arange(N) % 3)
    model, twin = Used(table, lambda m, x: m(x), 4), Used(OneHot(table), lambda m, x: m(x), 4)
    twin.head.load_state_dict(model.head.state_dict())
    found = moments_of(model, batch).layers["middle.weight",]
    A, G = expected(twin, twin.middle.layer, batch)
    torch.testing.assert_close(found.inputs.values, A.diagonal(), **EXACT)
    torch.testing.assert_close(found.signals, G, **EXACT)


def test_groups_have_a_factor_each():
    conv, batch = nn.Conv2d(4, 6, 2, groups=2), batch_of(4, 3, 3)
    model = Used(conv, lambda m, x: m(x).flatten(2).mT, 6)
    found = moments_of(model, batch).layers["middle.weight", "middle.bias"]
    parts = [nn.Conv2d(2, 3, 2).double() for _ in range(2)]
    for k, part in enumerate(parts):
        part.weight, part.bias = (nn.Parameter(p.detach()[3 * k : 3 * k + 3]) for p in (conv.weight, conv.bias))
    twin = Used(
        nn.ModuleList(parts),
        lambda m, x: torch.cat([own(x[:, 2 * k : 2 * k + 2]) for k, own in enumerate(m)], 1).flatten(2).mT,
        6,
    )
    twin.head.load_state_dict(model.head.state_dict())
    for k, part in enumerate(parts):
        A, G = expected(twin, part, batch)
        torch.testing.assert_close(found.inputs[k], A, **EXACT)
        torch.testing.assert_close(found.signals[k], G, **EXACT)


def test_a_transposed_convolution():
    """With a stride as long as the kernel it is a layer applied at every place."""
    conv, batch = nn.ConvTranspose2d(3, 2, 2, stride=2, bias=False), batch_of(3, 2, 2)
    model = Used(conv, lambda m, x: m(x).flatten(2).mT, 2)
    layer = nn.Linear(3, 8, bias=False)
    with torch.no_grad():
        layer.weight.copy_(conv.weight.flatten(1).T)
    twin = Used(layer, lambda m, x: m(x.flatten(2).mT).unflatten(-1, (2, 4)).transpose(2, 3).flatten(1, 2), 2)
    twin.head.load_state_dict(model.head.state_dict())
    torch.testing.assert_close(model(batch[0]), twin(batch[0]))
    check(moments_of(model, batch).layers["middle.weight",], *expected(twin, layer, batch))


def test_padding_changes_nothing():
    layer = nn.Linear(5, 4)
    x, y = batch_of(3, 5)
    padded = torch.cat([x, torch.randn(N, 9, 5).double()], 1)
    model = Used(layer, lambda m, x: m(x)[:, :3], 4)
    left, right = (moments_of(model, (inputs, y)).layers["middle.weight", "middle.bias"] for inputs in (x, padded))
    same(left, right)


def traces_by_layer(model, batch, ask=oracle.ask_pair):
    """The trace of each layer that was found, and that of the exact Fisher."""
    found = moments_of(model, batch, ask).layers
    return {
        names: (own.traces(), sum(expected_trace(model, batch, name, ask) for name in names))
        for names, own in found.items()
    }


@pytest.mark.parametrize("places", [2, 30])
def test_a_layers_trace_is_that_of_the_exact_fisher_whatever_is_pooled(places):
    model = Used(nn.Linear(5, 4), lambda m, x: m(x), 4)
    own, exact = traces_by_layer(model, batch_of(places, 5))["middle.weight", "middle.bias"]
    torch.testing.assert_close(own, exact, **EXACT)


def test_uses_of_a_tied_weight_add_up():
    """A table that is also the last layer: the partial traces are the sums of those of both uses."""

    class Words(nn.Module):
        def __init__(self, *, apart):
            super().__init__()
            self.table = nn.Embedding(6, 4)
            self.last = nn.Linear(4, 6, bias=False)
            if not apart:
                self.last.weight = self.table.weight

        def forward(self, x):
            return self.last(self.table(x).cumsum(1).tanh())

    tied, apart = Words(apart=False).double(), Words(apart=True).double()
    with torch.no_grad():
        apart.table.weight.copy_(tied.table.weight)
        apart.last.weight.copy_(tied.table.weight)
    batch = torch.randint(0, 6, (N, 5)), torch.randint(0, 6, (N, 5))
    [both] = moments_of(tied, batch).layers.values()
    found = moments_of(apart, batch).layers
    table, last = found["table.weight",], found["last.weight",]
    counts = torch.diag(table.inputs.values)
    rows = last.signals * last.inputs.trace() + counts * table.signals.trace()
    columns = last.inputs * last.signals.trace() + table.signals * counts.trace()
    # gradients of a sample add up before they are squared: the trace is exact, the factors are those of the sum
    more = both.traces() / (last.traces() + table.traces())
    torch.testing.assert_close(both.traces(), expected_trace(tied, batch, "table"), **EXACT)
    torch.testing.assert_close(both.signals * both.inputs.trace(), rows * more, **EXACT)
    torch.testing.assert_close(both.inputs * both.signals.trace(), columns * more, **EXACT)


SHAPED = {
    "weight norm": lambda: (weight_norm(nn.Linear(5, 4)), lambda m, x: m(x), "parametrizations.weight.original1"),
    "a slice of a table": lambda: (nn.Embedding(9, 5), lambda m, x: x + m.weight[: x.shape[1]], "weight"),
    "einsum": lambda: (nn.Linear(5, 4, bias=False), lambda m, x: torch.einsum("nti,oi->nto", x, m.weight), "weight"),
}


@pytest.mark.parametrize("name", SHAPED)
def test_a_matrix_without_factors_of_its_own_has_the_fishers_partial_traces(name):
    middle, how, own = SHAPED[name]()
    batch = batch_of(3, 5)
    model = Used(middle, how, 5 if name == "a slice of a table" else 4)
    names = [n for n, _ in model.named_parameters()]
    sizes = [p.numel() for p in model.parameters()]
    rows = oracle.sample_gradients(model, batch, N).split(sizes, 1)[names.index(f"middle.{own}")]
    shape = dict(model.named_parameters())[f"middle.{own}"].shape
    g = rows.reshape(N, *shape)
    found = moments_of(model, batch).layers[f"middle.{own}",]
    torch.testing.assert_close(found.inputs * found.signals.trace(), (g.mT @ g).mean(0), **EXACT)
    torch.testing.assert_close(found.signals * found.inputs.trace(), (g @ g.mT).mean(0), **EXACT)


def test_one_use_that_is_not_captured_costs_that_weight_alone():
    class Odd(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.Linear(5, 5), nn.Linear(5, 3)

        def forward(self, x):
            return self.second((self.first(x) + x @ self.first.weight.tril()).tanh())

    source = PerSampleGradients(Odd().double())
    found = layer_moments(source, LoaderStream([batch_of(5)]), signals="observed")
    assert source._verifier.knowledge.alone == {"first.weight"}
    assert list(found.layers) == [("second.weight", "second.bias"), ("first.weight",)]


def test_rows_that_go_to_one_expert_or_another_are_captured():
    case = zoo.mixture()
    found = moments_of(case.model, case.batch, case.ask).layers
    used = {name for name, p in case.model.named_parameters()}
    assert {name for names in found for name in names} <= used
    reached = [names for names in found if "experts" in names[0]]
    for names in reached:
        exact = sum(expected_trace(case.model, case.batch, name, case.ask) for name in names)
        torch.testing.assert_close(found[names].traces(), exact, **EXACT)


def moved(model, optimizer, batch, between):
    """How far an old task's outputs move in steps on another one, relative to their length."""
    x, new = batch[0], (torch.randn_like(batch[0]), batch[1].roll(1))
    optimizer.begin_task(0)
    # again and again, for the noise that is sent back to reach all outputs
    optimizer.end_task([batch] * 10)
    between(model)
    optimizer.begin_task(1)
    before = model(x).detach()
    start = model[0].weight.detach().clone()
    for _ in range(3):
        optimizer.zero_grad()
        F.cross_entropy(model(new[0]), new[1]).backward()
        optimizer.step()
    assert (model[0].weight - start).norm() > 1e-4
    return float(((model(x) - before).norm() / before.norm()).detach())


def freeze_biases(model):
    for layer in (model[0], model[2]):
        layer.bias.requires_grad_(False)


PROTECTING = {
    "fopng-k": lambda model, **more: fopng.KroneckerFOPNG(
        model, 0.1, strength=1e9, rank=None, signals="normal", **more
    ),
    "ncl": lambda model, **more: fopng.NCL(model, 0.1, strength=1e9, rank=None, signals="normal", **more),
    "gpm": lambda model, **more: fopng.GPM(model, 0.1, threshold=1.0, **more),
}


def few(width=12):
    """Fewer samples than inputs: there are steps that change no old answer."""
    model = nn.Sequential(nn.Linear(width, 8), nn.Tanh(), nn.Linear(8, 3)).double()
    return model, batch_of(width)


@pytest.mark.parametrize("name", PROTECTING)
def test_a_bias_that_is_frozen_after_a_task_leaves_old_answers_alone(name):
    model, batch = few()
    assert moved(model, PROTECTING[name](model), batch, freeze_biases) < 1e-5


@pytest.mark.parametrize("name", PROTECTING)
def test_rates_that_differ_within_a_layer_leave_old_answers_alone(name):
    model, batch = few()
    groups = [{"params": [model[0].bias, model[2].weight], "lr": 0.01}]
    assert moved(model, PROTECTING[name](model, groups=groups), batch, lambda _: None) < 1e-5


def test_coverage_is_a_table_by_layer():
    model = nn.Sequential(nn.Embedding(7, 4), nn.Flatten(), nn.Linear(12, 3), nn.LayerNorm(3), nn.Linear(3, 3))
    model[4].bias.requires_grad_(False)
    found = fopng.coverage(model, (torch.randint(0, 7, (N, 3)), torch.arange(N) % 3))
    told = {layer.names: layer.protection for layer in found.layers}
    assert found.share == 1
    assert told == {
        ("0.weight",): "Kronecker, each of 7 inputs by itself",
        ("2.weight", "2.bias"): "Kronecker",
        ("3.weight",): "diagonal",
        ("3.bias",): "diagonal",
        ("4.weight",): "Kronecker",
        ("4.bias",): "frozen",
    }
    assert "100.0% of the parameters in matrices" in str(found)
    assert all(layer.bytes > 0 for layer in found.layers if layer.protection != "frozen")


def test_a_wide_layer_is_cut_and_says_so(monkeypatch):
    monkeypatch.setattr("fopng.curvature.factor_sums.WIDE", 50)
    monkeypatch.setattr("fopng.curvature.factors.KEPT", 6)
    model = nn.Sequential(nn.Linear(8, 60), nn.Tanh(), nn.Linear(60, 3)).double()
    batch = batch_of(8)
    found = moments_of(model, batch).layers
    first = found["0.weight", "0.bias"]
    exact = expected(model, model[0], batch)
    # four samples send back four directions: nothing is lost
    torch.testing.assert_close(written_out(first.signals), exact[1], rtol=1e-7, atol=1e-10)
    last = written_out(found["2.weight", "2.bias"].inputs)
    torch.testing.assert_close(last, expected(model, model[2], batch)[0], rtol=1e-7, atol=1e-10)
    told = {layer.names: layer.protection for layer in fopng.coverage(model, batch).layers}
    assert told["0.weight", "0.bias"] == "Kronecker, 4 of 60 outputs"
    assert told["2.weight", "2.bias"] == "Kronecker, 4 of 61 inputs"
    names, v = ("weight", "bias"), (torch.randn(60, 8).double(), torch.randn(60).double())
    product = KroneckerOperator({names: LayerBasis.of(first, bias=True)}, Vector({}))(
        Vector(dict(zip(names, v, strict=True)))
    )
    M = exact[1] @ torch.cat([v[0], v[1][:, None]], 1) @ exact[0]
    torch.testing.assert_close(torch.cat([product["weight"], product["bias"][:, None]], 1), M, rtol=1e-6, atol=1e-9)


def test_what_a_wide_layer_loses_keeps_its_trace(monkeypatch):
    monkeypatch.setattr("fopng.curvature.factor_sums.WIDE", 20)
    monkeypatch.setattr("fopng.curvature.factors.KEPT", 3)
    model = nn.Linear(8, 30).double()
    batch = torch.randn(16, 8).double(), torch.arange(16)
    [own] = moments_of(model, batch).layers.values()
    A, G = expected(model, model, batch)
    torch.testing.assert_close(own.traces(), A.trace() * G.trace(), **EXACT)
    largest = torch.linalg.eigvalsh(written_out(own.signals))[-1]
    torch.testing.assert_close(largest, torch.linalg.eigvalsh(G)[-1], rtol=0.05, atol=0)
    values = torch.linalg.eigvalsh(written_out(own.signals))
    assert values[0] > 0


def test_a_method_says_what_it_does_not_hold(monkeypatch):
    model, batch = few()
    optimizer = fopng.KroneckerFOPNG(model, 0.1, strength=1.0)
    optimizer.begin_task(0)
    monkeypatch.setattr("fopng.gradients.uses._use", lambda *_: None)
    # of the last layer alone
    monkeypatch.setattr(
        "fopng.curvature.factor_sums.matrix_form", lambda shape: Form() if shape[0] == 3 and len(shape) > 1 else None
    )
    with pytest.warns(UserWarning, match=r"holds 20% of the parameters in matrices.*: 0\.weight\. See fopng\.coverage"):
        optimizer.end_task([batch])
    assert optimizer.diagnose().coverage == pytest.approx(24 / 120)


def test_a_last_batch_of_one_sample_costs_nothing():
    """Positions are the same for all samples, also where there is one."""
    case = zoo.position_embedding()
    source = PerSampleGradients(case.model, predict=case.ask)
    alone = tuple(t[:1] for t in case.batch)
    found = layer_moments(source, LoaderStream([case.batch, alone]), signals="observed")
    again = layer_moments(source, LoaderStream([alone]), signals="observed")
    assert not source._verifier.knowledge.alone
    assert set(found.layers) == set(again.layers)
    exact = oracle.sample_gradients(case.model, alone, 1, ask=case.ask)
    total = sum(own.traces() for own in again.layers.values()) + sum(p.sum() for p in again.rest.parts.values())
    torch.testing.assert_close(total, exact.square().sum(), **EXACT)
