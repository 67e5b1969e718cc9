from collections import namedtuple

import pytest
import torch

from fopng.core.batch import map_tensors, predict_pairs, regroup, regroup_exactly, sample_count, take, tensors_of

Pair = namedtuple("Pair", ["x", "y"])


def batch(n: int, start: int = 0):
    return {"x": torch.arange(start, start + n).float()[:, None], "y": (torch.arange(start, start + n), None)}


@pytest.mark.parametrize("structure", [(1, 2), [1, 2], {"a": 1, "b": (2, "text")}, Pair(1, 2), 1])
def test_map_keeps_the_structure(structure):
    tensors = map_tensors(lambda t: t, _with_tensors(structure))
    assert type(tensors) is type(_with_tensors(structure))
    assert [int(t) for t in tensors_of(tensors)] == [1, 2][: len(tensors_of(tensors))]


def _with_tensors(structure):
    if isinstance(structure, int):
        return torch.tensor(structure)
    if isinstance(structure, dict):
        return {k: _with_tensors(v) for k, v in structure.items()}
    if isinstance(structure, Pair):
        return Pair(*map(_with_tensors, structure))
    return type(structure)(map(_with_tensors, structure)) if isinstance(structure, (tuple, list)) else structure


def test_predict_pairs_says_what_it_wants():
    with pytest.raises(TypeError, match="got a dict of 2.*Pass predict="):
        predict_pairs(torch.nn.Identity(), {"x": 1, "y": 2})


def test_samples_are_counted_by_the_first_tensor_that_has_them():
    assert sample_count((torch.tensor(3), "text", torch.zeros(4, 2))) == 4
    with pytest.raises(TypeError, match="axis 0 is the sample"):
        sample_count(("text", torch.tensor(1)))


def test_take_leaves_what_is_shared():
    x, table = take((torch.arange(4), torch.arange(3)), torch.tensor([3, 1]))
    assert x.tolist() == [3, 1]
    assert table.tolist() == [0, 1, 2]


def test_take_along_replicas():
    assert take(torch.arange(6).reshape(2, 3), torch.tensor([2]), axis=1).tolist() == [[2], [5]]


@pytest.mark.parametrize("sizes", [[3, 3, 3], [1] * 7, [10], [2, 9, 1], [4, 0, 4]])
@pytest.mark.parametrize("size", [1, 4, 100])
def test_regroup_keeps_every_sample_in_order(sizes, size):
    starts = [sum(sizes[:k]) for k in range(len(sizes))]
    groups = list(regroup([batch(n, start) for n, start in zip(sizes, starts, strict=True)], size))
    assert torch.cat([g["y"][0] for g in groups]).tolist() == list(range(sum(sizes)))
    assert all(0 < len(g["x"]) <= size for g in groups)


def test_regroup_joins_what_fits():
    pairs = [(torch.zeros(2, 3), torch.zeros(2)) for _ in range(6)]
    assert [len(x) for x, _ in regroup(pairs, 8)] == [8, 4]


@pytest.mark.parametrize(
    "second",
    [
        (torch.zeros(2, 5), torch.zeros(2)),
        (torch.zeros(2, 3), torch.zeros(2).long()),
        {"x": torch.zeros(2, 3), "y": torch.zeros(2)},
    ],
    ids=["another length", "another type", "another structure"],
)
def test_regroup_keeps_unlike_batches_apart(second):
    assert len(list(regroup([(torch.zeros(2, 3), torch.zeros(2)), second], 10))) == 2


def test_regroup_joins_what_has_the_same_text_beside_it():
    batches = [(torch.zeros(2, 3), text) for text in ("task 1", "task 1", "task 2")]
    assert [(len(x), text) for x, text in regroup(batches, 10)] == [(4, "task 1"), (2, "task 2")]


@pytest.mark.parametrize("beside", [["a", "b"], torch.zeros(7), torch.tensor(1)], ids=["texts", "a table", "a number"])
def test_regroup_never_joins_what_is_not_per_sample(beside):
    pairs = [(torch.zeros(2, 3), beside)] * 2
    assert [len(x) for x, _ in regroup(pairs, 10)] == [2, 2]


@pytest.mark.parametrize("sizes", [[9], [3, 3, 3], [4, 4, 1], [1] * 9, [2, 0, 7]], ids=str)
def test_exact_groups_do_not_depend_on_how_the_samples_came(sizes):
    starts = [sum(sizes[:k]) for k in range(len(sizes))]
    pairs = [(torch.arange(start, start + n), torch.zeros(n, 2)) for n, start in zip(sizes, starts, strict=True)]
    groups = list(regroup_exactly(pairs, 4))
    assert [x.tolist() for x, _ in groups] == [[0, 1, 2, 3], [4, 5, 6, 7], [8]]


def test_exact_groups_keep_apart_what_cannot_be_joined():
    groups = list(regroup_exactly([torch.zeros(3, 2), torch.zeros(3, 5)], 2))
    assert [tuple(group.shape) for group in groups] == [(2, 2), (1, 2), (2, 5), (1, 5)]
