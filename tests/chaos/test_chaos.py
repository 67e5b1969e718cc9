"""A minute's worth of what `make chaos` does for an hour: a few cases of every kind, others in each place of the list."""

import random

import pytest

from chaos import arguments, commands, damaging, killing
from chaos.laboratory import warm
from chaos.tally import Broken, Tally, demand, table

QUICK = {**damaging.KINDS, **commands.KINDS, **arguments.KINDS}
FORKED = {kind for kind in damaging.KINDS if "unfinished" in kind or "again" in kind or "checkpoint" in kind}
FEW = {
    **dict.fromkeys(killing.KINDS, 3),
    **dict.fromkeys(QUICK, 25),
    **dict.fromkeys({*FORKED, "`lock`", "`group.json`"}, 3),
}


@pytest.fixture(scope="module", autouse=True)
def _warm(session_cache):
    with pytest.MonkeyPatch.context() as patch:
        for name in ("FOPNG_CACHE", "OMP_NUM_THREADS", "COLUMNS"):
            patch.setenv(name, "1")  # so that they are put back
        warm(session_cache)
        yield


@pytest.mark.parametrize("kind", [kind for kind in FEW if "--jobs" not in kind])
def test_nothing_is_broken(kind):
    tally = Tally(seed=1)
    tally.attack(kind, {**killing.KINDS, **QUICK}[kind], FEW[kind])
    assert tally.failures == []


def test_a_long_attack_goes_on_where_it_was_left(tmp_path):
    seen = []

    def case(chance, place):
        seen.append((place, chance.random()))
        demand(place != 2, "the third")

    for aim in (2, 4):
        Tally.at(tmp_path / "counts.json", 0).attack("kind", case, aim)
    assert [place for place, _ in seen] == [0, 1, 2, 3]
    kept = Tally.at(tmp_path / "counts.json", 0)
    assert kept.failures == ["kind:2 Broken: the third"]
    assert list(table(kept, {"all": ["kind"]}))[2:] == ["| **all** | **4** | **1** |", "| kind | 4 | 1 |"]
    with pytest.raises(Broken):
        case(random.Random("0 kind 2"), 2)
    assert seen[-1] == seen[2]
    assert Tally.at(tmp_path / "counts.json", 7).tried == {}
