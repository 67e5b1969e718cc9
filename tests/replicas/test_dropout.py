"""Masks that are a function of a key: right in their shares, the same alone and among others."""

import pytest
import torch
from torch import nn

from fopng.lab.benchmarks.dropout import Dropout, DropoutKeys, dropout_key
from fopng.lab.engine import Seeds

CPU = torch.device("cpu")


def keys(count, step=0):
    return DropoutKeys([Seeds(run).dropout for run in range(count)], CPU)(torch.tensor(step))


def mask(key, shape=(10, 256), share=0.5, place=0):
    with dropout_key(key):
        return Dropout(share, place)(torch.ones(shape)) != 0


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_the_share_is_dropped(share):
    kept = torch.stack([mask(key, share=share) for key in keys(50)]).double()
    deviation = (share * (1 - share) / kept.numel()) ** 0.5
    assert abs(float(kept.mean()) - (1 - share)) < 4 * deviation
    # nor is a place dropped in more runs than chance would have it
    each = kept.mean(0)
    assert abs(float(each.var()) / (share * (1 - share) / 50) - 1) < 0.15


def test_masks_of_runs_steps_and_places_have_nothing_to_do_with_each_other():
    of_runs = [mask(key) for key in keys(10)]
    of_steps = [mask(keys(1, step)[0]) for step in range(1, 10)]
    of_places = [mask(keys(1)[0], place=place) for place in range(1, 10)]
    flat = torch.stack([*of_runs, *of_steps, *of_places]).flatten(1).double()
    correlation = torch.corrcoef(flat) - torch.eye(len(flat))
    assert float(correlation.abs().max()) < 5 / flat.shape[1] ** 0.5


def test_rows_and_columns_are_independent():
    kept = mask(keys(1)[0], (400, 400)).double()
    for table in (kept, kept.T):
        correlation = torch.corrcoef(table) - torch.eye(400)
        assert float(correlation.abs().max()) < 6 / 400**0.5
        assert float(correlation.square().mean()) == pytest.approx(1 / 400, rel=0.1)


def test_what_is_kept_is_scaled_and_carries_the_gradient():
    x = torch.randn(4, 8, requires_grad=True)
    with dropout_key(keys(1)[0]):
        y = Dropout(0.75, 0)(x)
    assert torch.equal(y, torch.where(y != 0, 4 * x, 0))
    y.sum().backward()
    assert torch.equal(x.grad, torch.where(y != 0, 4.0, 0.0))


def test_under_vmap_each_replica_has_the_mask_that_it_has_alone():
    layer, x, some = Dropout(0.5, 1), torch.randn(3, 5, 7), keys(3, 4)

    def ask(key, x):
        with dropout_key(key):
            return layer(x)

    together = torch.func.vmap(ask, randomness="error")(some, x)
    assert torch.equal(together, torch.stack([ask(key, own) for key, own in zip(some, x, strict=True)]))


def test_without_a_key_it_is_torch_s_own():
    x = torch.randn(30, 30)
    torch.manual_seed(3)
    found = Dropout(0.3, 0)(x)
    torch.manual_seed(3)
    assert torch.equal(found, nn.functional.dropout(x, 0.3))


def test_in_evaluation_nothing_is_dropped():
    x = torch.randn(3, 3)
    with dropout_key(keys(1)[0]):
        assert Dropout(0.5, 0).eval()(x) is x
        assert Dropout(0.0, 0)(x) is x


def test_the_key_ends_with_its_context():
    with pytest.raises(KeyError), dropout_key(keys(1)[0]):
        raise KeyError
    torch.manual_seed(0)
    first = Dropout(0.5, 0)(torch.ones(50))
    assert not torch.equal(first, Dropout(0.5, 0)(torch.ones(50)))


@pytest.mark.parametrize("share", [-0.1, 1.0])
def test_a_share_that_is_none_is_refused(share):
    with pytest.raises(ValueError, match=r"Expected a dropout in \[0, 1\)"):
        Dropout(share, 0)
