"""Each kernel against its plain twin: on a GPU where there is one, in Triton's interpreter elsewhere."""

import pytest
import torch
import torch.nn.functional as F

from fopng.core.kernels import forced, usable
from fopng.core.vector import Vector
from fopng.curvature.metric import Diagonal, trust_region_step
from fopng.gradients.layers import LinearGradients
from fopng.lab.benchmarks import Scenario
from fopng.lab.benchmarks.dropout import Dropout, dropout_key
from fopng.lab.engine.batched.products import LayersAsProducts
from replicas.pairs import plans, side_by_side
from small_runs import stream

pytest.importorskip("triton", reason="needs Triton")
pytestmark = pytest.mark.gpu if torch.cuda.is_available() else []
DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


@pytest.fixture(autouse=True)
def _exact_products():
    """TF32 is torch's default for convolutions: the twin must be float32."""
    before = torch.backends.cudnn.allow_tf32
    torch.backends.cudnn.allow_tf32 = False
    yield
    torch.backends.cudnn.allow_tf32 = before


def drawn(*shape):
    return torch.randn(*shape, device=DEVICE)


def both(work):
    """What is computed with the kernels, and without."""
    found = []
    for use in (True, False):
        with forced(use):
            found.append(work())
    return found


def test_the_plain_way_is_taken_without_cuda_in_other_precisions_and_under_autocast():
    assert not usable(torch.zeros(2))
    if DEVICE.type == "cuda":
        assert usable(drawn(2))
        assert not usable(drawn(2).double())
        with torch.autocast("cuda", dtype=torch.bfloat16):
            assert not usable(drawn(2))


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(("m", "i", "o"), [(1, 256, 1), (70, 256, 65), (33, 784, 100), (5, 2048, 7)])
def test_products_with_stored_gradients(m, i, o, bias):
    gradients = LinearGradients(drawn(3, m, 1, i), drawn(3, m, 1, o), bias=bias)
    # parts of a longer vector
    longer = drawn(3, o * i + o + 7)
    weight, own_bias = longer[:, 3 : 3 + o * i].view(3, o, i), longer[:, 3 + o * i : 3 + o * i + o]
    fused, plain = both(lambda: gradients.rmatvec([weight, own_bias if bias else None]))
    torch.testing.assert_close(fused, plain, rtol=1e-5, atol=1e-5 * float(plain.abs().max()))


@pytest.mark.parametrize("p", [1, 4096, 10_001])
@pytest.mark.parametrize("radius", [0.3, "own"])
def test_the_natural_step(p, radius):
    values = torch.rand(4, p, device=DEVICE)
    metric = Diagonal(Vector({"weight": values}, 1), damping=0.1)
    g = drawn(4, p)
    g[1] = 0
    eta = torch.rand(4, device=DEVICE) if radius == "own" else radius
    found = trust_region_step(metric, Vector({"weight": g}, 1), radius=eta)["weight"]
    direction = g / (values + 0.1)
    length = (g * direction).sum(-1).sqrt()
    expected = direction * (eta / length).nan_to_num(posinf=0.0).unsqueeze(-1)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-7)
    assert not found[1].any()


@pytest.mark.parametrize("factor", [0.7, "own"])
def test_the_move_leaves_those_alone_that_have_ended(factor):
    from fopng.contrib.kernels.steps import move

    theta, v = drawn(3, 5000), drawn(3, 5000)
    v[1, 7] = torch.nan
    alive = torch.tensor([True, False, True], device=DEVICE)
    own = torch.rand(3, 1, device=DEVICE) if factor == "own" else factor
    expected = torch.where(alive[:, None], theta - own * v, theta)
    move(theta, v, own, alive)
    torch.testing.assert_close(theta, expected)


@pytest.mark.parametrize(
    ("channels", "outputs", "size", "kernel"), [(3, 8, (6, 7), 3), (40, 70, (24, 23), 3), (5, 4, (9, 9), 5)]
)
def test_convolutions(channels, outputs, size, kernel):
    x, weight, bias = drawn(2, 3, channels, *size), drawn(2, outputs, channels, kernel, kernel), drawn(2, outputs)
    back = drawn(2, 3, outputs, *size)

    def ask(x, weight, bias):
        return F.conv2d(x, weight, bias, padding=kernel // 2)

    def work():
        leaves = [tensor.clone().requires_grad_() for tensor in (x, weight, bias)]
        with LayersAsProducts():
            out = torch.func.vmap(ask)(*leaves)
        return out, *torch.autograd.grad(out, leaves, back)

    exact = [tensor.double().requires_grad_() for tensor in (x, weight, bias)]
    out = torch.stack([ask(*own) for own in zip(*exact, strict=True)])
    expected = (out, *torch.autograd.grad(out, exact, back.double()))
    for found in both(work):
        for own, true in zip(found, expected, strict=True):
            torch.testing.assert_close(own.double(), true, rtol=1e-5, atol=1e-5 * float(true.detach().abs().max()))


def test_linear_layers_as_products():
    x, weight, bias, back = drawn(2, 5, 7), drawn(2, 3, 7), drawn(2, 3), drawn(2, 5, 3)

    def work(mode):
        leaves = [tensor.clone().requires_grad_() for tensor in (x, weight, bias)]
        with mode:
            out = torch.func.vmap(F.linear)(*leaves)
        return out, *torch.autograd.grad(out, leaves, back)

    for own, plain in zip(work(LayersAsProducts()), work(torch.enable_grad()), strict=True):
        torch.testing.assert_close(own, plain)


def test_products_are_rounded_where_autocast_says_so():
    """And signals come back through them; the gradients of weights have the precision of the weights."""
    x = drawn(2, 3, 2, 6, 6)
    weights = drawn(2, 4, 2, 3, 3), drawn(2, 4), drawn(2, 5, 144), drawn(2, 5)
    back = drawn(2, 3, 5)

    def ask(x, kernel, kernel_bias, weight, bias):
        return F.linear((F.conv2d(x, kernel, kernel_bias, padding=1) / 9).tanh().flatten(1), weight, bias)

    def work(together):
        leaves = [tensor.clone().requires_grad_() for tensor in (x, *weights)]
        with forced(False), torch.autocast(torch.device(DEVICE).type, torch.bfloat16, cache_enabled=False):
            if together:
                with LayersAsProducts():
                    out = torch.func.vmap(ask)(*leaves)
            else:
                out = torch.stack([ask(*own) for own in zip(*leaves, strict=True)])
        return out, *torch.autograd.grad(out, leaves, back.to(out.dtype))

    own, plain = work(True), work(False)
    assert [each.dtype for each in own] == [each.dtype for each in plain] == [torch.bfloat16, *[torch.float32] * 5]
    for found, expected in zip(own, plain, strict=True):
        torch.testing.assert_close(found, expected, rtol=2e-2, atol=2e-2 * float(expected.detach().abs().max()))


def test_gradients_are_written_where_they_belong():
    """Into a vector of all, each once; one that is used twice has the sum of both, one that is used transposed its own memory,
    one that is detached none."""
    x, back = drawn(2, 5, 3), drawn(2, 5, 3)
    theta = drawn(2, 4 * (9 + 3))
    names = ("first", "first bias", "second", "second bias", "turned", "turned bias", "fixed", "fixed bias")

    def split(flat):
        pieces = flat.split([9, 3] * 4, -1)
        return {n: p.view(2, 3, 3) if p.shape[-1] == 9 else p for n, p in zip(names, pieces, strict=True)}

    def ask(own, inputs):
        once = F.linear(inputs, own["first"], own["first bias"]).relu()
        again = F.linear(F.linear(once, own["second"], own["second bias"]), own["second"], own["first bias"])
        turned = F.linear(again, own["turned"].t(), own["turned bias"])
        return F.linear(turned, own["fixed"].detach(), own["fixed bias"].detach())

    def gradients(mode):
        leaves = {name: value.detach().requires_grad_() for name, value in split(theta).items()}
        with mode(leaves):
            out = torch.func.vmap(ask)(leaves, x)
        return dict(zip(names, torch.autograd.grad(out, list(leaves.values()), back, allow_unused=True), strict=True))

    raw = torch.full_like(theta, torch.nan)
    places = split(raw)
    found = gradients(lambda leaves: LayersAsProducts({leaves[n].data_ptr(): place for n, place in places.items()}))
    plain = gradients(lambda leaves: torch.enable_grad())
    for name in names[:6]:
        torch.testing.assert_close(found[name], plain[name])
    for name in names[6:]:
        assert found[name] is plain[name] is None
        assert places[name].isnan().all()
    assert found["turned"].data_ptr() != places["turned"].data_ptr()
    for name in ("first", "second bias", "turned bias"):
        assert found[name].data_ptr() == places[name].data_ptr()
        assert found[name].stride() == places[name].stride()


@pytest.mark.parametrize("share", [0.5, 0.3])
def test_dropout_by_key(share):
    layer, x = Dropout(share, place=2).train(), drawn(4, 6, 700)
    keys = torch.tensor([5, 2**31 + 9, 77, 2**32 - 1], device=DEVICE)

    def ask(own, key):
        with dropout_key(key):
            return layer(own)

    def work(together):
        leaf = x.clone().requires_grad_()
        out = torch.func.vmap(ask)(leaf, keys) if together else torch.stack([ask(leaf[r], keys[r]) for r in range(4)])
        return out, *torch.autograd.grad(out, leaf, x)

    with forced(False):
        expected = work(True)
    with forced(True):
        for together in (True, False):
            for own, plain in zip(work(together), expected, strict=True):
                assert torch.equal(own == 0, plain == 0)
                torch.testing.assert_close(own, plain)


@pytest.mark.parametrize(
    "shape",
    [
        (1, 16, 16),
        pytest.param((3, 8, 8), marks=pytest.mark.skipif(DEVICE.type != "cuda", reason="needs a CUDA device")),
    ],
)
def test_whole_runs(shape, tmp_path):
    """Two tasks, with dropout where there are colours: the weights end where the plain way ends."""
    tasks = stream(Scenario.TASK, tasks=2, samples=20, shape=shape)
    made = plans("fopng", range(2), tasks=tasks, epochs=1, precision="float32")
    (first, fused), (second, plain) = both(lambda: side_by_side(made, tmp_path, DEVICE))
    torch.testing.assert_close(fused, plain, rtol=1e-3, atol=1e-5)
    assert [outcome.accuracy for outcome in first] == [outcome.accuracy for outcome in second]
