import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from fopng.core.layout import ParamLayout

shapes = st.lists(st.lists(st.integers(1, 3), max_size=3).map(torch.Size), min_size=1, max_size=5)


@given(shapes, st.sampled_from([(), (2,), (2, 3)]))
def test_split_and_join_are_inverse(shapes, lead):
    layout = ParamLayout({f"p{k}": shape for k, shape in enumerate(shapes)})
    flat = torch.arange(torch.Size(lead).numel() * layout.size).float().reshape(*lead, layout.size)
    named = layout.split(flat)
    assert {name: value.shape for name, value in named.items()} == {n: (*lead, *s) for n, s in layout.shapes.items()}
    assert torch.equal(layout.join(named), flat)


def test_split_gives_views_in_flat_order():
    layout = ParamLayout.of(nn.Linear(2, 3))
    flat = torch.zeros(9)
    layout.split(flat)["bias"].fill_(1)
    assert flat.tolist() == [0] * 6 + [1] * 3


def test_an_absent_head_is_zero():
    layout = ParamLayout.of(nn.ModuleDict({"a": nn.Linear(1, 1), "b": nn.Linear(1, 1)}))
    assert layout.join({"a.weight": None, "b.bias": torch.ones(2, 1)}).tolist() == [[0, 0, 0, 1]] * 2


def test_joined_into_a_row_of_a_wider_kind():
    layout = ParamLayout.of(nn.Conv2d(2, 3, 2))
    rows = torch.full((2, layout.size), float("nan"))
    whole = {name: torch.randn(shape).bfloat16() for name, shape in layout.shapes.items()}
    for row, named in zip(rows, (whole, {"bias": whole["bias"]}), strict=True):
        layout.join(named, out=row)
        assert torch.equal(row, layout.join(named).float())


def test_trainable_parameters_once_each():
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    model[1].weight = model[0].weight
    model[1].bias.requires_grad_(False)
    assert ParamLayout.of(model).names == ("0.weight", "0.bias")


def test_order_is_part_of_a_layout():
    first, second = torch.Size([2]), torch.Size([3])
    assert ParamLayout({"a": first, "b": second}) != ParamLayout({"b": second, "a": first})
    assert ParamLayout({"a": first}) == ParamLayout({"a": first})
    assert hash(ParamLayout({"a": first})) == hash(ParamLayout({"a": first}))


@pytest.mark.parametrize(
    ("action", "message"),
    [
        (lambda _: ParamLayout.of(nn.ReLU()), "with trainable parameters, got none"),
        (lambda _: ParamLayout.of(nn.LazyLinear(2)), "'weight' has no shape yet"),
        (lambda x: x.split(torch.zeros(4)), "last axis of 3 parameters"),
        (lambda x: x.join({"z": torch.zeros(2)}), r"got \['z'\]"),
        (lambda x: x.join({}), "got none"),
        (lambda x: x.join({"a": torch.zeros(2), "b": torch.zeros(3)}), "Expected 'b' of shape"),
        (lambda x: x.check_extends(ParamLayout({"z": torch.Size([1])})), r"\['z'\]"),
        (lambda x: x.check_extends(ParamLayout({"a": torch.Size([5])})), r"Expected 'a' of shape \(5,\), got \(2,\)"),
    ],
)
@pytest.mark.filterwarnings("ignore:Lazy modules")
def test_errors_say_what_was_expected(action, message):
    with pytest.raises(ValueError, match=message):
        action(ParamLayout({"a": torch.Size([2]), "b": torch.Size([1])}))


def test_complex_parameters_are_refused():
    with pytest.raises(TypeError, match="complex64 in 'weight'"):
        ParamLayout.of(nn.Linear(2, 2, dtype=torch.complex64))
