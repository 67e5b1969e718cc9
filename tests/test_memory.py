import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import zoo
from fopng.core.layout import ParamLayout
from fopng.gradients.directions import MixedBasis, ScaledBasis
from fopng.gradients.layers import DenseGradients, LinearGradients, SampleGradients
from fopng.gradients.per_sample import GradientSource
from fopng.memory.gradients import GradientMemory, MemoryFull

CLOSE = {"rtol": 1e-10, "atol": 1e-12}
LAYOUT = ParamLayout(
    {
        "a.weight": torch.Size([3, 4]),
        "a.bias": torch.Size([3]),
        "b.scale": torch.Size([5]),
        "c.weight": torch.Size([2, 3]),
    }
)
SIZES = {("a.weight", "a.bias"): 15, ("b.scale",): 5, ("c.weight",): 6}


def block(
    m: int, lead: tuple[int, ...] = (), *, without: tuple[str, ...] = (), written_out: bool = False
) -> SampleGradients:
    """Random gradients: a factored layer, a dense one, and a head that some blocks do not reach."""
    linear = LinearGradients(
        torch.randn(*lead, m, 1, 4, dtype=torch.float64), torch.randn(*lead, m, 1, 3, dtype=torch.float64), bias=True
    )
    layers = {("a.weight", "a.bias"): linear}
    for names in (("b.scale",), ("c.weight",)):
        layers[names] = DenseGradients(torch.randn(*lead, m, SIZES[names], dtype=torch.float64))
    if written_out:
        layers |= {
            ("a.weight",): DenseGradients(linear.slab(0, 12)),
            ("a.bias",): DenseGradients(linear.slab(12, 15)),
        }
        del layers["a.weight", "a.bias"]
    return SampleGradients(LAYOUT, {k: v for k, v in layers.items() if k not in without}, m)


def is_the_matrix(memory: GradientMemory, rows: torch.Tensor) -> None:
    """Every operation of the memory against `rows [..., m, p]`, written out independently."""
    lead, (m, p) = rows.shape[:-2], rows.shape[-2:]
    c, x, w = torch.randn(*lead, m).double(), torch.randn(*lead, p).double(), torch.rand(*lead, p).double()
    assert (memory.count, memory.size) == (m, p)
    torch.testing.assert_close(memory.dense(), rows, **CLOSE)
    torch.testing.assert_close(memory.matvec(c), torch.einsum("...mp,...m->...p", rows, c), **CLOSE)
    torch.testing.assert_close(memory.rmatvec(x), torch.einsum("...mp,...p->...m", rows, x), **CLOSE)
    torch.testing.assert_close(memory.gram(None), rows @ rows.mT, **CLOSE)
    torch.testing.assert_close(memory.gram(w), (rows * w[..., None, :]) @ rows.mT, **CLOSE)


@pytest.mark.parametrize("lead", [(), (3,), (2, 2)])
@pytest.mark.parametrize("weighted", [False, True])
def test_memory_is_the_matrix_it_stands_for(lead, weighted):
    memory, rows = GradientMemory(LAYOUT), []
    for task in range(3):
        own = block(4 - task, lead, without=(("c.weight",),) if task == 0 else (), written_out=task == 1)
        weight = torch.rand(*lead, LAYOUT.size).double() if weighted else None
        memory.append(own, weight=weight)
        rows.append(own.dense() if weight is None else own.dense() * weight[..., None, :])
    is_the_matrix(memory, torch.cat(rows, -2))


def test_several_blocks_are_one_task():
    memory, blocks = GradientMemory(LAYOUT), [block(2), block(3)]
    memory.append(*blocks)
    assert memory.shares == [5]
    is_the_matrix(memory, torch.cat([b.dense() for b in blocks]))


def test_one_memory_meets_many_vectors_and_many_memories_one():
    own = block(3)
    memory = GradientMemory(LAYOUT)
    memory.append(own)
    x, c = torch.randn(2, LAYOUT.size).double(), torch.randn(2, 3).double()
    torch.testing.assert_close(memory.rmatvec(x), x @ own.dense().T, **CLOSE)
    torch.testing.assert_close(memory.matvec(c), c @ own.dense(), **CLOSE)
    replicas = block(3, (2,))
    memory = GradientMemory(LAYOUT)
    memory.append(replicas, weight=torch.ones(LAYOUT.size).double())
    torch.testing.assert_close(memory.rmatvec(x[0]), replicas.dense() @ x[0], **CLOSE)
    torch.testing.assert_close(memory.matvec(c[0]), c[0] @ replicas.dense(), **CLOSE)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64])
def test_vectors_of_another_precision(dtype):
    memory = GradientMemory(LAYOUT)
    memory.append(block(3))
    memory.to(dtype=torch.float32)
    x, c = torch.ones(LAYOUT.size, dtype=dtype), torch.ones(3, dtype=dtype)
    rough = {"rtol": 2e-2, "atol": 5e-2} if dtype == torch.bfloat16 else {"rtol": 1e-4, "atol": 1e-4}
    torch.testing.assert_close(memory.rmatvec(x), memory.dense().sum(1).to(dtype), **rough)
    torch.testing.assert_close(memory.matvec(c), memory.dense().sum(0).to(dtype), **rough)


def test_an_empty_memory_is_a_matrix_without_rows():
    memory = GradientMemory(LAYOUT)
    p = LAYOUT.size
    assert memory.rmatvec(torch.ones(2, p)).shape == (2, 0)
    assert torch.equal(memory.matvec(torch.ones(2, 0)), torch.zeros(2, p))
    assert memory.gram(torch.ones(2, p)).shape == (2, 0, 0)
    assert memory.dense().shape == (0, p)


def test_gradients_of_a_model_go_in_and_come_out():
    case = zoo.cnn()
    source = GradientSource(case.model)
    (gradients,) = source.gradients(case.batch, "ground-truth")
    memory = GradientMemory(source.layout)
    memory.append(gradients)
    is_the_matrix(memory, gradients.dense())


def test_what_is_stored_does_not_change_with_the_callers_batch():
    model = nn.Linear(3, 2)
    x = torch.ones(4, 3)
    source = GradientSource(model)
    memory = GradientMemory(source.layout)
    memory.append(*source.gradients((x, torch.zeros(4).long()), "ground-truth"))
    before = memory.dense().clone()
    x.fill_(7)
    assert torch.equal(memory.dense(), before)


@given(st.lists(st.integers(1, 9), min_size=1, max_size=5), st.integers(5, 20))
@pytest.mark.filterwarnings("ignore::fopng.memory.gradients.MemoryFull")
def test_thinning_is_even_and_counted(sizes, capacity):
    memory, rows, dropped = GradientMemory(LAYOUT, capacity=capacity), [], 0
    for size in sizes:
        own = block(size)
        before = memory.count
        memory.append(own)
        rows.append(own.dense())
        dropped += before + size - memory.count
    assert memory.count == min(sum(sizes), capacity) or max(memory.shares) - min(memory.shares) <= 1
    assert memory.dropped == dropped == sum(sizes) - memory.count
    everything = torch.cat(rows)
    found = [bool((everything == row).all(1).any()) for row in memory.dense()]
    assert all(found)
    is_the_matrix(memory, memory.dense())


def test_a_full_memory_keeps_evenly_spaced_directions_and_says_so():
    memory = GradientMemory(LAYOUT, capacity=8)
    first, second = block(6), block(6)
    memory.append(first, weight=torch.full((LAYOUT.size,), 2.0).double())
    with pytest.warns(MemoryFull, match=r"max_directions=8.*kept \[4, 4\] directions of 2 tasks, dropped 4"):
        memory.append(second)
    assert memory.shares == [4, 4]
    assert memory.dropped == 4
    kept = [0, 1, 3, 4]
    is_the_matrix(memory, torch.cat([2 * first.dense()[kept], second.dense()[kept]]))


def test_a_small_task_keeps_all_it_has():
    memory = GradientMemory(LAYOUT, capacity=10)
    memory.append(block(2))
    with pytest.warns(MemoryFull):
        memory.append(block(20))
    assert memory.shares == [2, 8]


def test_no_room_for_every_task():
    memory = GradientMemory(LAYOUT, capacity=1)
    memory.append(block(1))
    with pytest.raises(ValueError, match="each of 2 tasks, got max_directions=1. Raise it"):
        memory.append(block(1))
    assert memory.shares == [1]


def test_bytes():
    memory = GradientMemory(LAYOUT)
    memory.append(block(2), weight=torch.rand(LAYOUT.size).double())
    assert memory.nbytes == 8 * (2 * (4 + 3) + 2 * 5 + 2 * 6 + LAYOUT.size)


@pytest.mark.parametrize("shuffled", [False, True])
def test_state_goes_out_and_in_to_the_same_bits(shuffled):
    memory = GradientMemory(LAYOUT, capacity=9)
    memory.append(block(3), weight=torch.rand(LAYOUT.size).double())
    memory.append(block(4, written_out=True))
    with pytest.warns(MemoryFull):
        memory.append(block(5))
    state = memory.state_dict()
    assert all(isinstance(value, torch.Tensor) for value in state.values())
    if shuffled:
        state = dict(sorted(state.items(), reverse=True))
    other = GradientMemory(LAYOUT, capacity=9)
    other.load_state_dict({key: value.clone() for key, value in state.items()})
    assert (other.shares, other.dropped, other.nbytes) == (memory.shares, memory.dropped, memory.nbytes)
    x, c = torch.randn(LAYOUT.size).double(), torch.randn(memory.count).double()
    assert torch.equal(other.rmatvec(x), memory.rmatvec(x))
    assert torch.equal(other.matvec(c), memory.matvec(c))
    assert torch.equal(other.gram(x.abs()), memory.gram(x.abs()))


def test_state_of_another_model_is_refused():
    memory = GradientMemory(LAYOUT)
    memory.append(block(1))
    with pytest.raises(ValueError, match=r"got some of \['a.bias', 'a.weight', 'b.scale', 'c.weight'\]"):
        GradientMemory(ParamLayout({"z": torch.Size([1])})).load_state_dict(memory.state_dict())


def test_to_changes_the_precision_and_nothing_else():
    memory = GradientMemory(LAYOUT)
    memory.append(block(2))
    rows = memory.dense()
    memory.to(dtype=torch.float32)
    torch.testing.assert_close(memory.dense(), rows.float())
    assert memory.shares == [2]


def test_relayout_with_a_new_head_in_the_middle():
    memory, own = GradientMemory(LAYOUT), block(3)
    memory.append(own)
    shapes = {}
    for name, shape in LAYOUT.shapes.items():
        shapes |= {name: shape} | ({"new.weight": torch.Size([2])} if name == "b.scale" else {})
    wider = ParamLayout(shapes)
    memory.relayout(wider)
    is_the_matrix(memory, wider.carry(own.dense(), LAYOUT))
    memory.append(SampleGradients(wider, {("new.weight",): DenseGradients(torch.ones(1, 2).double())}, 1))
    assert memory.dense()[3].nonzero().flatten().tolist() == [20, 21]


def test_relayout_that_parts_neighbours():
    """A parameter of the same layer that was frozen, and no longer is."""
    memory, own = GradientMemory(LAYOUT), block(3)
    memory.append(own, weight=torch.arange(LAYOUT.size).double())
    before = memory.dense()
    names = ["a.weight", "a.scale", "a.bias", "b.scale", "c.weight"]
    wider = ParamLayout({name: LAYOUT.shapes.get(name, torch.Size([2])) for name in names})
    memory.relayout(wider)
    is_the_matrix(memory, wider.carry(before, LAYOUT))
    later = {("a.weight",): DenseGradients(torch.randn(2, 12).double())}
    memory.append(SampleGradients(wider, later, 2))
    is_the_matrix(memory, memory.dense())


def test_relayout_refuses_what_is_gone():
    memory = GradientMemory(LAYOUT)
    with pytest.raises(ValueError, match=r"Expected the parameters \['a.weight'"):
        memory.relayout(ParamLayout({"z": torch.Size([1])}))


def test_another_layout_is_refused():
    memory = GradientMemory(ParamLayout({"z": torch.Size([1])}))
    with pytest.raises(ValueError, match="another layout. Call relayout first"):
        memory.append(block(1))


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_gradients_that_are_not_finite_name_their_parameters(value):
    own, memory = block(2), GradientMemory(LAYOUT)
    own.layers["a.weight", "a.bias"].d[0, 0, 0] = value
    with pytest.raises(ValueError, match=r"got NaN or infinity in \['a.bias', 'a.weight'\]"):
        memory.append(own)
    with pytest.raises(ValueError, match=r"in \['b.scale'\]"):
        memory.append(block(2), weight=torch.where(torch.arange(LAYOUT.size) == 16, value, 1.0).double())
    assert memory.count == 0


def test_only_some_layers():
    memory, own = GradientMemory(LAYOUT), block(3)
    memory.append(own)
    rows = torch.zeros_like(own.dense())
    rows[:, 15:20] = own.dense()[:, 15:20]
    is_the_matrix(memory.only(["b.scale"]), rows)
    assert memory.only(["b.scale"]).layers == (("b.scale",),)


@pytest.mark.parametrize("slab", [8, 200, 2**20])
def test_gram_does_not_depend_on_the_slab(slab, monkeypatch):
    monkeypatch.setattr("fopng.memory.gradients.SLAB_BYTES", slab)
    memory = GradientMemory(LAYOUT)
    memory.append(block(3))
    memory.append(block(2, written_out=True))
    is_the_matrix(memory, memory.dense())


def test_gram_of_many_directions():
    """Enough directions for the half of the Gram matrix that is not worked out but mirrored."""
    memory = GradientMemory(LAYOUT)
    memory.append(block(130))
    is_the_matrix(memory, memory.dense())


@pytest.mark.parametrize("lead", [(), (2,)])
def test_bases_around_a_memory(lead):
    memory, own = GradientMemory(LAYOUT), block(3, lead)
    memory.append(own)
    scale, mix = torch.rand(*lead, LAYOUT.size).double(), torch.randn(*lead, 3, 3).double()
    is_the_matrix(ScaledBasis(memory, scale), own.dense() * scale[..., None, :])
    is_the_matrix(MixedBasis(memory, mix), mix.mT @ own.dense())


def test_a_capacity_below_one():
    with pytest.raises(ValueError, match="at least 1 direction, got 0"):
        GradientMemory(LAYOUT, capacity=0)
