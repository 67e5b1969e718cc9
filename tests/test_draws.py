"""Draws that are a function of a key."""

import torch

from fopng.core.keyed_random import choose_rows, scrambled


def test_scrambling_is_a_bijection():
    assert scrambled(torch.arange(2**16)).unique().numel() == 2**16


def test_rows_are_drawn_without_replacement_among_the_members():
    keys, members = torch.arange(200), torch.arange(200) % 7 + 4
    rows = choose_rows(keys, 4, 12, members)
    assert (rows < members[:, None]).all()
    assert all(len(set(own)) == 4 for own in rows.tolist())


def test_where_members_are_too_few_all_of_them_come_first():
    rows = choose_rows(torch.arange(50), 6, 9, torch.tensor(4).expand(50))
    assert rows[:, :4].sort().values.tolist() == [[0, 1, 2, 3]] * 50
    assert (rows[:, 4:] >= 4).all()


def test_every_row_is_as_likely_and_so_is_every_pair():
    rows = choose_rows(torch.arange(20000), 2, 5, torch.tensor(5).expand(20000))
    singles = torch.bincount(rows.flatten(), minlength=5) / 20000
    pairs = torch.bincount(rows[:, 0] * 5 + rows[:, 1], minlength=25).reshape(5, 5) / 20000
    torch.testing.assert_close(singles, torch.full((5,), 0.4), rtol=0, atol=0.015)
    torch.testing.assert_close(pairs[~torch.eye(5, dtype=torch.bool)], torch.full((20,), 0.05), rtol=0, atol=0.007)


def test_what_stands_beside_does_not_change_a_draw():
    """Nor does what fills the table up."""
    keys, members = torch.tensor([3, 8]), torch.tensor([5, 9])
    both = choose_rows(keys, 3, 9, members)
    assert torch.equal(both[0], choose_rows(keys[0], 3, 5, members[0]))
