"""Every kind of layer and its options, each layer alone between two others, against one sample at a time."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import oracle
from flat import flat
from fopng.gradients.layers import DenseGradients, LinearGradients
from fopng.gradients.per_sample import PerSampleGradients

N = 4


class Between(nn.Module):
    """A layer with something to learn before and after it."""

    def __init__(self, layer: nn.Module, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.before = nn.Parameter(1 + 0.1 * torch.randn(shape))
        self.layer = layer.double()
        with torch.no_grad():
            size = self.layer.eval()(torch.zeros(N, *shape).double()).flatten(1).shape[1]
        self.head = nn.Linear(size, 3)
        self.double()

    def forward(self, x):
        return self.head(self.layer(x * self.before).flatten(1).tanh())


def agrees(layer: nn.Module, *shape: int) -> PerSampleGradients:
    for parameter in layer.parameters():
        nn.init.normal_(parameter)
    model = Between(layer, shape)
    batch = torch.randn(N, *shape, dtype=torch.float64), torch.tensor([0, 1, 2, 0])
    source = PerSampleGradients(model)
    actual = next(source.gradients(batch, "log-likelihood"))
    expected = oracle.sample_gradients(model, batch, N)
    torch.testing.assert_close(flat(actual.rows(), source.layout.shapes), expected, rtol=1e-10, atol=1e-12)
    return source


CONVOLUTIONS = {
    "plain": (nn.Conv2d, {}),
    "stride": (nn.Conv2d, {"stride": 2}),
    "uneven stride": (nn.Conv2d, {"stride": (2, 1)}),
    "padding": (nn.Conv2d, {"padding": 1}),
    "uneven padding": (nn.Conv2d, {"padding": (0, 2)}),
    "dilation": (nn.Conv2d, {"dilation": 2}),
    "groups": (nn.Conv2d, {"groups": 2}),
    "depthwise": (nn.Conv2d, {"groups": 4}),
    "no bias": (nn.Conv2d, {"bias": False}),
    "same": (nn.Conv2d, {"padding": "same"}),
    "same, even kernel": (nn.Conv2d, {"padding": "same", "kernel_size": (2, 4)}),
    "same, dilated": (nn.Conv2d, {"padding": "same", "dilation": 2, "kernel_size": 2}),
    "valid": (nn.Conv2d, {"padding": "valid"}),
    "circular": (nn.Conv2d, {"padding": 1, "padding_mode": "circular"}),
    "reflect": (nn.Conv2d, {"padding": (1, 2), "padding_mode": "reflect"}),
    "replicate, same": (nn.Conv2d, {"padding": "same", "padding_mode": "replicate", "kernel_size": 2}),
    "all at once": (nn.Conv2d, {"stride": 2, "padding": 2, "dilation": 2, "groups": 2, "kernel_size": (3, 2)}),
    "1d": (nn.Conv1d, {"stride": 2, "padding": 1, "dilation": 2, "groups": 2}),
    "1d same": (nn.Conv1d, {"padding": "same", "kernel_size": 4}),
    "1d circular": (nn.Conv1d, {"padding": 2, "padding_mode": "circular"}),
    "3d": (nn.Conv3d, {"stride": (1, 2, 1), "padding": (1, 0, 2), "dilation": (1, 1, 2), "groups": 2}),
    "3d replicate": (nn.Conv3d, {"padding": 1, "padding_mode": "replicate"}),
}


@pytest.mark.parametrize("name", CONVOLUTIONS)
@pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel")
def test_convolution(name):
    kind, options = CONVOLUTIONS[name]
    dims = {nn.Conv1d: 1, nn.Conv2d: 2, nn.Conv3d: 3}[kind]
    source = agrees(kind(4, 4, **{"kernel_size": 3, **options}), 4, *(7, 6, 5)[:dims])
    assert not source._verifier.knowledge.alone


@given(
    *(st.integers(1, 3) for _ in range(4)),
    st.sampled_from([(1, 1), (2, 2), (2, 1)]),
)
def test_any_convolution(kernel, stride, padding, dilation, channels):
    groups, out = channels
    agrees(nn.Conv2d(2, 2 * out, kernel, stride, padding, dilation, groups), 2, 6, 7)


LAYERS = {
    "linear": (nn.Linear(5, 4), (5,)),
    "linear without bias": (nn.Linear(5, 4, bias=False), (5,)),
    "linear in a sequence": (nn.Linear(5, 4), (3, 5)),
    "linear in a plane": (nn.Linear(5, 4), (2, 3, 5)),
    "batch norm 1d": (nn.BatchNorm1d(5), (5,)),
    "batch norm of sequences": (nn.BatchNorm1d(5), (5, 3)),
    "batch norm 2d": (nn.BatchNorm2d(2), (2, 3, 4)),
    "batch norm 3d": (nn.BatchNorm3d(2), (2, 3, 2, 2)),
    "layer norm": (nn.LayerNorm(5), (5,)),
    "layer norm of a sequence": (nn.LayerNorm(5), (3, 5)),
    "layer norm of two axes": (nn.LayerNorm((3, 5)), (3, 5)),
    "layer norm without bias": (nn.LayerNorm(5, bias=False), (3, 5)),
    "group norm": (nn.GroupNorm(2, 4), (4, 3, 3)),
    "group norm of vectors": (nn.GroupNorm(2, 4), (4,)),
    "rms norm": (nn.RMSNorm(5), (3, 5)),
    "instance norm": (nn.InstanceNorm2d(2, affine=True), (2, 3, 3)),
    "prelu": (nn.PReLU(5), (5,)),
    "transposed convolution": (nn.ConvTranspose2d(2, 3, 2, stride=2), (2, 3, 3)),
}


@pytest.mark.parametrize("name", LAYERS)
def test_layer(name):
    layer, shape = LAYERS[name]
    agrees(layer, *shape)


def test_batch_norm_uses_its_running_statistics():
    layer = nn.BatchNorm1d(5)
    layer.running_mean.normal_()
    layer.running_var.uniform_(0.5, 2)
    agrees(layer, 5)


@pytest.mark.parametrize("frozen", ["weight", "bias"])
@pytest.mark.parametrize(
    ("build", "shape"),
    [
        (lambda: nn.Linear(5, 4), (5,)),
        (lambda: nn.Conv2d(2, 3, 2), (2, 4, 4)),
        (lambda: nn.LayerNorm(5), (5,)),
        (lambda: nn.BatchNorm1d(5), (5,)),
        (lambda: nn.GRUCell(5, 4), (5,)),
    ],
    ids=["linear", "conv", "layer norm", "batch norm", "cell"],
)
def test_half_frozen_layers(build, shape, frozen):
    layer = build()
    for name, parameter in layer.named_parameters():
        parameter.requires_grad_(not name.startswith(frozen))
    agrees(layer, *shape)


def test_factors_are_kept_where_they_are_smaller():
    """Two positions through 8 x 9 weights: 2 * 17 numbers against 72; nine through 3 x 4: 63 against 12."""
    for length, i, o, kind in ((2, 8, 9, LinearGradients), (9, 3, 4, DenseGradients)):
        model = nn.Sequential(nn.Linear(i, o), nn.Tanh(), nn.Flatten(), nn.Linear(length * o, 2)).double()
        batch = torch.randn(N, length, i).double(), torch.zeros(N).long()
        layers = next(PerSampleGradients(model).gradients(batch, "ground-truth")).layers
        assert type(layers["0.weight", "0.bias"]) is kind


def test_a_subclass_that_answers_otherwise_needs_no_rule():
    class Doubled(nn.Linear):
        def forward(self, x):
            return 2 * super().forward(x)

    source = agrees(Doubled(5, 4), 5)
    assert not {"layer.weight", "layer.bias"} & source._verifier.knowledge.alone


REFUSED = {
    "batch statistics": (nn.BatchNorm1d(5, track_running_stats=False), "normalises by the batch at hand"),
    "without parameters": (
        nn.BatchNorm1d(5, track_running_stats=False, affine=False),
        "normalises by the batch at hand",
    ),
    "max_norm": (nn.Embedding(5, 5, max_norm=1.0), "max_norm"),
    "scale_grad_by_freq": (nn.Embedding(5, 5, scale_grad_by_freq=True), "scale_grad_by_freq"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_has_no_gradient_a_sample_is_refused_by_name(name):
    layer, message = REFUSED[name]
    with pytest.raises(ValueError, match=f"Module '1' .*{message}"):
        PerSampleGradients(nn.Sequential(nn.Linear(5, 5), layer))
