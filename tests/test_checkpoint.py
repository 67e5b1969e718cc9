"""A checkpoint survives whatever happens to the process, the disk and the files."""

import hashlib
import random

import pytest
import torch

from faults import LIMIT_FILE_SIZE, cut_short, flipped, kill_after, rest, start
from fopng.lab.storage.checkpoint import SLOTS, Checkpoint, CheckpointError

SAVE_FOREVER = """
import itertools, sys
from pathlib import Path
import torch
from fopng.lab.storage.checkpoint import Checkpoint
torch.set_num_threads(1)
checkpoint = Checkpoint(Path(sys.argv[1]))
first = (checkpoint.load().state or {"step": 0})["step"]
print("ready", flush=True)
for step in itertools.count(first + 1):
    checkpoint.save({"step": step, "weights": torch.full((20_000,), float(step))})
"""


def state(step):
    return {"step": step, "weights": torch.full((3,), float(step))}


@pytest.fixture
def saved(tmp_path):
    checkpoint = Checkpoint(tmp_path)
    for step in (1, 2):
        checkpoint.save(state(step))
    return tmp_path


def step_in(folder):
    """The step that is loaded, after all of the state was looked at; None without a whole file."""
    found = Checkpoint(folder).load().state
    assert found is None or found["weights"].tolist() == [found["step"]] * 3
    return found and found["step"]


def test_what_was_saved_last_is_loaded_until_it_is_cleared(saved):
    restored = Checkpoint(saved).load()
    assert (step_in(saved), restored.generation, restored.damaged) == (2, 2, ())
    assert {path.name for path in saved.iterdir()} == set(SLOTS)
    Checkpoint(saved).clear()
    assert list(saved.iterdir()) == []
    restored = Checkpoint(saved).load()
    assert (restored.state, restored.generation, restored.damaged) == (None, 0, ())


def test_a_new_process_writes_over_the_older_file_without_having_loaded(saved):
    Checkpoint(saved).save(state(3))
    assert step_in(saved) == 3
    (saved / SLOTS[1]).unlink()
    assert step_in(saved) == 2


@pytest.mark.parametrize(("slot", "left"), [(SLOTS[0], 1), (SLOTS[1], 2)])
@pytest.mark.parametrize("damages", [cut_short, lambda whole: flipped(whole, 300)], ids=["cut", "flipped"])
def test_a_file_cut_short_anywhere_or_changed_by_a_bit_is_passed_over(saved, slot, left, damages):
    path = saved / slot
    for content in damages(path.read_bytes()):
        path.write_bytes(content)
        assert step_in(saved) == left
        [told] = Checkpoint(saved).load().damaged
        assert slot in told


def test_a_save_after_damage_never_touches_the_file_that_is_whole(saved):
    (saved / SLOTS[0]).write_bytes(b"cut")
    whole = (saved / SLOTS[1]).read_bytes()
    Checkpoint(saved).save(state(3))
    assert (saved / SLOTS[1]).read_bytes() == whole
    assert step_in(saved) == 3


def test_both_files_damaged_is_a_start_from_nothing_that_says_so(saved):
    for slot in SLOTS:
        (saved / slot).write_bytes(b"rubbish" * 20)
    checkpoint = Checkpoint(saved)
    restored = checkpoint.load()
    assert (restored.state, len(restored.damaged)) == (None, 2)
    checkpoint.save(state(9))
    assert step_in(saved) == 9


def test_killed_at_random_moments_it_never_loses_more_than_the_save_in_progress(tmp_path):
    generator = random.Random(0)
    reached = 0
    for pause in (0.5, *(generator.uniform(0.0, 0.15) for _ in range(4))):
        kill_after(start(SAVE_FOREVER, str(tmp_path)), pause)
        restored = Checkpoint(tmp_path).load()
        step = restored.state["step"] if restored.state else 0
        assert step >= reached
        assert not step or restored.state["weights"].eq(step).all()
        reached = step
    assert reached > 0


def test_a_full_disk_keeps_the_last_checkpoint(tmp_path):
    Checkpoint(tmp_path).save(state(1))
    script = f"""{LIMIT_FILE_SIZE}
import sys
from pathlib import Path
import torch
from fopng.lab.storage.atomic import WriteError
from fopng.lab.storage.checkpoint import Checkpoint
checkpoint = Checkpoint(Path(sys.argv[1]))
print("ready", flush=True)
for size in (100, 400, 1000, 5000):
    limit(size)
    try:
        checkpoint.save({{"step": 2, "weights": torch.zeros(5000)}})
    except WriteError as error:
        print("told")
"""
    assert rest(start(script, str(tmp_path))).split() == ["told"] * 4
    assert step_in(tmp_path) == 1
    assert not list(tmp_path.glob(".*"))


def test_another_format_is_refused_and_not_taken_for_damage(saved, monkeypatch):
    monkeypatch.setattr("fopng.lab.storage.checkpoint.FORMAT", 5)
    with pytest.raises(CheckpointError, match=r"Expected a checkpoint of format 5 .* got 4"):
        Checkpoint(saved).load()


def test_a_file_begins_with_the_digest_of_the_rest(saved):
    content = (saved / SLOTS[0]).read_bytes()
    assert content[:32] == hashlib.sha256(content[32:]).digest()
