import io
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import zoo
from flat import Shapes, flat, named, size
from fopng.core.tree import as_kind, bytes_of, from_plain, to_plain
from fopng.core.vector import Vector
from fopng.gradients.directions import Basis, CombinedBasis, ScaledBasis
from fopng.gradients.layers import DenseGradients, LayerGradients, LinearGradients, SampleGradients
from fopng.gradients.per_sample import PerSampleGradients
from fopng.memory.gradients import GradientMemory, MemoryFull

CLOSE = {"rtol": 1e-10, "atol": 1e-12}
SHAPES = {
    "a.weight": torch.Size([3, 4]),
    "a.bias": torch.Size([3]),
    "b.scale": torch.Size([5]),
    "c.weight": torch.Size([2, 3]),
}
SIZE = size(SHAPES)


def block(
    m: int, lead: tuple[int, ...] = (), *, without: tuple[str, ...] = (), written_out: bool = False
) -> SampleGradients:
    """Random gradients: a factored layer, a dense one, and a head that some blocks do not reach."""
    linear = LinearGradients(
        torch.randn(*lead, m, 1, 4, dtype=torch.float64), torch.randn(*lead, m, 1, 3, dtype=torch.float64), bias=True
    )
    layers: dict[tuple[str, ...], LayerGradients] = {("a.weight", "a.bias"): linear}
    for name in ("b.scale", "c.weight"):
        rows = torch.randn(*lead, m, *SHAPES[name], dtype=torch.float64)
        layers[name,] = DenseGradients((rows,), len(lead))
    if written_out:
        layers |= {
            ("a.weight",): DenseGradients((linear.rows(0),), len(lead)),
            ("a.bias",): DenseGradients((linear.rows(1),), len(lead)),
        }
        del layers["a.weight", "a.bias"]
    return SampleGradients({k: v for k, v in layers.items() if k not in without}, m)


def vector(x: torch.Tensor) -> Vector:
    return named(x, SHAPES)


def dense(gradients: SampleGradients | Basis, shapes: Shapes = SHAPES) -> torch.Tensor:
    """All gradients written out, `[..., m, p]`."""
    return flat(gradients.rows(), shapes)


def is_the_matrix(memory: Basis, rows: torch.Tensor, shapes: Shapes = SHAPES) -> None:
    """Every operation of the memory against `rows [..., m, p]`, written out independently."""
    lead, (m, p) = rows.shape[:-2], rows.shape[-2:]
    c, x, w = torch.randn(*lead, m).double(), torch.randn(*lead, p).double(), torch.rand(*lead, p).double()
    assert (memory.count, p) == (m, size(shapes))
    torch.testing.assert_close(dense(memory, shapes), rows, **CLOSE)
    torch.testing.assert_close(flat(memory.matvec(c), shapes), torch.einsum("...mp,...m->...p", rows, c), **CLOSE)
    torch.testing.assert_close(memory.rmatvec(named(x, shapes)), torch.einsum("...mp,...p->...m", rows, x), **CLOSE)
    torch.testing.assert_close(memory.gram(None), rows @ rows.mT, **CLOSE)
    torch.testing.assert_close(memory.gram(named(w, shapes)), (rows * w[..., None, :]) @ rows.mT, **CLOSE)


@pytest.mark.parametrize("lead", [(), (3,), (2, 2)])
@pytest.mark.parametrize("weighted", [False, True])
def test_memory_is_the_matrix_it_stands_for(lead, weighted):
    memory, rows = GradientMemory(), []
    for task in range(3):
        own = block(4 - task, lead, without=(("c.weight",),) if task == 0 else (), written_out=task == 1)
        weight = torch.rand(*lead, SIZE).double() if weighted else None
        memory = memory.appended(own, weight=None if weight is None else vector(weight))
        rows.append(dense(own) if weight is None else dense(own) * weight[..., None, :])
    is_the_matrix(memory, torch.cat(rows, -2))


def test_several_blocks_are_one_task():
    blocks = [block(2), block(3)]
    memory = GradientMemory().appended(*blocks)
    assert memory.shares == (5,)
    is_the_matrix(memory, torch.cat([dense(b) for b in blocks]))


def test_one_memory_meets_many_vectors_and_many_memories_one():
    own = block(3)
    memory = GradientMemory().appended(own)
    x, c = torch.randn(2, SIZE).double(), torch.randn(2, 3).double()
    torch.testing.assert_close(memory.rmatvec(vector(x)), x @ dense(own).T, **CLOSE)
    torch.testing.assert_close(flat(memory.matvec(c), SHAPES), c @ dense(own), **CLOSE)
    replicas = block(3, (2,))
    memory = GradientMemory().appended(replicas, weight=vector(torch.ones(SIZE).double()))
    torch.testing.assert_close(memory.rmatvec(vector(x[0])), dense(replicas) @ x[0], **CLOSE)
    torch.testing.assert_close(flat(memory.matvec(c[0]), SHAPES), c[0] @ dense(replicas), **CLOSE)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64])
def test_vectors_of_another_precision(dtype):
    memory = as_kind(GradientMemory().appended(block(3)), torch.empty(0))
    x, c = torch.ones(SIZE, dtype=dtype), torch.ones(3, dtype=dtype)
    rough = {"rtol": 2e-2, "atol": 5e-2} if dtype == torch.bfloat16 else {"rtol": 1e-4, "atol": 1e-4}
    torch.testing.assert_close(memory.rmatvec(vector(x)), dense(memory).sum(1).to(dtype), **rough)
    torch.testing.assert_close(flat(memory.matvec(c), SHAPES), dense(memory).sum(0).to(dtype), **rough)


def test_an_empty_memory_is_a_matrix_without_rows():
    memory, x = GradientMemory(), vector(torch.ones(2, SIZE))
    assert memory.rmatvec(x).shape == (2, 0)
    assert memory.matvec(torch.ones(2, 0)).parts == {}
    assert memory.gram(x).shape == (2, 0, 0)
    assert (memory.count, memory.rows().parts) == (0, {})


def test_gradients_of_a_model_go_in_and_come_out():
    case = zoo.cnn()
    source = PerSampleGradients(case.model)
    (gradients,) = source.gradients(case.batch, "ground-truth")
    shapes = source.layout.shapes
    is_the_matrix(GradientMemory().appended(gradients), dense(gradients, shapes), shapes)


def test_what_is_stored_does_not_change_with_the_callers_batch():
    model = nn.Linear(3, 2)
    x = torch.ones(4, 3)
    source = PerSampleGradients(model)
    memory = GradientMemory().appended(*source.gradients((x, torch.zeros(4).long()), "ground-truth"))
    before = memory.rows().flat().clone()
    x.fill_(7)
    assert torch.equal(memory.rows().flat(), before)


@given(st.lists(st.integers(1, 9), min_size=1, max_size=5), st.integers(5, 20))
@pytest.mark.filterwarnings("ignore::fopng.memory.gradients.MemoryFull")
def test_thinning_is_even_and_counted(sizes, capacity):
    memory, rows, dropped = GradientMemory(), [], 0
    for m in sizes:
        own = block(m)
        before = memory.count
        memory = memory.appended(own, capacity=capacity)
        rows.append(dense(own))
        dropped += before + m - memory.count
    assert memory.count == min(sum(sizes), capacity) or max(memory.shares) - min(memory.shares) <= 1
    assert memory.dropped == dropped == sum(sizes) - memory.count
    everything = torch.cat(rows)
    found = [bool((everything == row).all(1).any()) for row in dense(memory)]
    assert all(found)
    is_the_matrix(memory, dense(memory))


def test_a_full_memory_keeps_evenly_spaced_directions_and_says_so():
    first, second = block(6), block(6)
    memory = GradientMemory().appended(first, weight=vector(torch.full((SIZE,), 2.0).double()), capacity=8)
    with pytest.warns(MemoryFull, match=r"max_directions=8.*kept \[4, 4\] directions of 2 tasks, dropped 4"):
        memory = memory.appended(second, capacity=8)
    assert memory.shares == (4, 4)
    assert memory.dropped == 4
    kept = [0, 1, 3, 4]
    is_the_matrix(memory, torch.cat([2 * dense(first)[kept], dense(second)[kept]]))


def test_a_small_task_keeps_all_it_has():
    memory = GradientMemory().appended(block(2), capacity=10)
    with pytest.warns(MemoryFull):
        memory = memory.appended(block(20), capacity=10)
    assert memory.shares == (2, 8)


def test_no_room_for_every_task():
    memory = GradientMemory().appended(block(1), capacity=1)
    with pytest.raises(ValueError, match="each of 2 tasks, got max_directions=1. Raise it"):
        memory.appended(block(1), capacity=1)
    assert memory.shares == (1,)


def test_bytes():
    memory = GradientMemory().appended(block(2), weight=vector(torch.rand(SIZE).double()))
    assert bytes_of(memory) == 8 * (2 * (4 + 3) + 2 * 5 + 2 * 6 + SIZE)


def shuffle(plain: Any) -> Any:
    """The same with the keys of every dictionary in another order."""
    if isinstance(plain, list):
        return [shuffle(own) for own in plain]
    return {key: shuffle(plain[key]) for key in sorted(plain, reverse=True)} if isinstance(plain, dict) else plain


@pytest.mark.parametrize("shuffled", [False, True])
def test_state_goes_out_and_in_to_the_same_bits(shuffled):
    memory = GradientMemory().appended(block(3), weight=vector(torch.rand(SIZE).double()), capacity=9)
    memory = memory.appended(block(4, written_out=True), capacity=9)
    with pytest.warns(MemoryFull):
        memory = memory.appended(block(5), capacity=9)
    file = io.BytesIO()
    torch.save(shuffle(to_plain(memory)) if shuffled else to_plain(memory), file)
    file.seek(0)
    other = from_plain(torch.load(file, weights_only=True))
    assert (other.shares, other.dropped, bytes_of(other)) == (memory.shares, memory.dropped, bytes_of(memory))
    x, c = torch.randn(SIZE).double(), torch.randn(memory.count).double()
    assert torch.equal(other.rmatvec(vector(x)), memory.rmatvec(vector(x)))
    assert torch.equal(flat(other.matvec(c), SHAPES), flat(memory.matvec(c), SHAPES))
    assert torch.equal(other.gram(vector(x.abs())), memory.gram(vector(x.abs())))


def test_another_precision_changes_nothing_else():
    memory = GradientMemory().appended(block(2))
    single = as_kind(memory, torch.empty(0))
    torch.testing.assert_close(dense(single), dense(memory).float())
    assert single.shares == (2,)


def test_a_new_head_in_the_middle():
    own = block(3)
    memory = GradientMemory().appended(own)
    wider = {}
    for name, shape in SHAPES.items():
        wider |= {name: shape} | ({"new.weight": torch.Size([2])} if name == "b.scale" else {})
    is_the_matrix(memory, dense(own, wider), wider)
    later = SampleGradients({("new.weight",): DenseGradients((torch.ones(1, 2).double(),))}, 1)
    memory = memory.appended(later)
    assert dense(memory, wider)[3].nonzero().flatten().tolist() == [20, 21]


def test_a_new_parameter_between_those_of_a_layer():
    """One that was frozen, and no longer is."""
    memory = GradientMemory().appended(block(3), weight=vector(torch.arange(SIZE).double()))
    names = ["a.weight", "a.scale", "a.bias", "b.scale", "c.weight"]
    wider = {name: SHAPES.get(name, torch.Size([2])) for name in names}
    is_the_matrix(memory, flat(vector(dense(memory)), wider), wider)
    memory = memory.appended(SampleGradients({("a.weight",): DenseGradients((torch.randn(2, 3, 4).double(),))}, 2))
    is_the_matrix(memory, dense(memory, wider), wider)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_gradients_that_are_not_finite_name_their_parameters(value):
    own, memory = block(2), GradientMemory()
    own.layers["a.weight", "a.bias"].d[0, 0, 0] = value
    with pytest.raises(ValueError, match=r"got NaN or infinity in \['a.bias', 'a.weight'\]"):
        memory.appended(own)
    with pytest.raises(ValueError, match=r"in \['b.scale'\]"):
        memory.appended(block(2), weight=vector(torch.where(torch.arange(SIZE) == 16, value, 1.0).double()))
    assert memory.count == 0


def test_only_some_layers():
    own = block(3)
    memory = GradientMemory().appended(own)
    rows = torch.zeros_like(dense(own))
    rows[:, 15:20] = dense(own)[:, 15:20]
    is_the_matrix(memory.only(["b.scale"]), rows)
    assert memory.only(["b.scale"]).layers == (("b.scale",),)


@pytest.mark.parametrize("slab", [8, 200, 2**20])
def test_gram_does_not_depend_on_the_slab(slab, monkeypatch):
    monkeypatch.setattr("fopng.memory.gradients.SLAB_BYTES", slab)
    memory = GradientMemory().appended(block(3)).appended(block(2, written_out=True))
    is_the_matrix(memory, dense(memory))


def test_gram_of_many_directions():
    """Enough directions for the half of the Gram matrix that is not worked out but mirrored."""
    memory = GradientMemory().appended(block(130))
    is_the_matrix(memory, dense(memory))


@pytest.mark.parametrize("lead", [(), (2,)])
def test_bases_around_a_memory(lead):
    own = block(3, lead)
    memory = GradientMemory().appended(own)
    scale, mix = torch.rand(*lead, SIZE).double(), torch.randn(*lead, 3, 3).double()
    is_the_matrix(ScaledBasis(memory, vector(scale)), dense(own) * scale[..., None, :])
    is_the_matrix(CombinedBasis(memory, mix), mix.mT @ dense(own))


def test_a_capacity_below_one():
    with pytest.raises(ValueError, match="each of 1 tasks, got max_directions=0"):
        GradientMemory().appended(block(1), capacity=0)
