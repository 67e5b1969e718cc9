"""A checkpoint survives whatever happens to the process, the disk and the files."""

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


def test_what_was_saved_last_is_loaded(saved):
    restored = Checkpoint(saved).load()
    assert (restored.state["step"], restored.generation, restored.damaged) == (2, 2, ())
    assert restored.state["weights"].tolist() == [2, 2, 2]


def test_nothing_there_is_no_error(tmp_path):
    restored = Checkpoint(tmp_path).load()
    assert (restored.state, restored.generation, restored.damaged) == (None, 0, ())


def test_the_files_have_the_names_that_people_look_for(tmp_path):
    Checkpoint(tmp_path).save(state(1))
    assert {path.name for path in tmp_path.iterdir()} == {"checkpoint.json", "checkpoint.safetensors"}


def test_clearing_removes_everything(saved):
    Checkpoint(saved).clear()
    assert list(saved.iterdir()) == []


def test_a_new_process_writes_over_the_older_pair_without_having_loaded(saved):
    Checkpoint(saved).save(state(3))
    assert Checkpoint(saved).load().state["step"] == 3
    (saved / f"{SLOTS[0]}.json").unlink()
    assert Checkpoint(saved).load().state["step"] == 2


def files(folder):
    return sorted(folder.glob("checkpoint.*"))


@pytest.mark.parametrize("index", range(4))
def test_any_file_cut_short_at_any_length_leaves_a_whole_state(saved, index):
    path = files(saved)[index]
    whole = path.read_bytes()
    newest = path.name.startswith(SLOTS[1])
    for content in cut_short(whole):
        path.write_bytes(content)
        restored = Checkpoint(saved).load()
        # The description's last byte is the end of its line, which nothing depends on.
        if content != whole.rstrip(b"\n"):
            assert restored.state["step"] == (1 if newest else 2)
            assert "passed over" in restored.damaged[0]


@pytest.mark.parametrize("index", range(4))
def test_any_flipped_bit_is_noticed(saved, index):
    path = files(saved)[index]
    whole = path.read_bytes()
    for content in flipped(whole, 300):
        path.write_bytes(content)
        restored = Checkpoint(saved).load()
        step = restored.state["step"]
        assert restored.state["weights"].tolist() == [step] * 3
        assert step == 2 or restored.damaged


@pytest.mark.parametrize("damage", ["", "rubbish", "[]", "{}", "[" * 100_000, '{"digest": 1, "record": {"a": NaN}}'])
def test_both_pairs_damaged_is_a_start_from_nothing_that_says_so(saved, damage):
    for slot in SLOTS:
        (saved / f"{slot}.json").write_text(damage)
    checkpoint = Checkpoint(saved)
    restored = checkpoint.load()
    assert restored.state is None
    assert len(restored.damaged) == 2
    checkpoint.save(state(9))
    assert Checkpoint(saved).load().state["step"] == 9


def test_a_save_after_damage_never_touches_the_pair_that_is_whole(saved):
    (saved / f"{SLOTS[1]}.safetensors").write_bytes(b"cut")
    checkpoint = Checkpoint(saved)
    assert checkpoint.load().state["step"] == 1
    whole = (saved / f"{SLOTS[0]}.json").read_bytes()
    checkpoint.save(state(3))
    assert (saved / f"{SLOTS[0]}.json").read_bytes() == whole
    assert Checkpoint(saved).load().state["step"] == 3


def test_a_pair_is_never_mixed_from_two_generations(saved):
    """A kill between the two renames: the new tensors beside the old description."""
    Checkpoint(other := saved / "other").folder.mkdir()
    later = Checkpoint(other)
    for step in (1, 2, 3, 4):
        later.save(state(step))
    for slot in SLOTS:
        (saved / f"{slot}.safetensors").write_bytes((other / f"{slot}.safetensors").read_bytes())
    assert Checkpoint(saved).load().state is None


def test_killed_at_random_moments_it_never_loses_more_than_the_save_in_progress(tmp_path):
    generator = random.Random(0)
    reached = 0
    for pause in (0.5, *(generator.uniform(0.0, 0.15) for _ in range(4))):
        kill_after(start(SAVE_FOREVER, str(tmp_path)), pause)
        restored = Checkpoint(tmp_path).load()
        step = restored.state["step"] if restored.state else 0
        assert step >= reached
        if step:
            assert restored.state["weights"].eq(step).all()
        reached = step
    assert reached > 0


def test_a_full_disk_keeps_the_last_checkpoint(tmp_path):
    Checkpoint(tmp_path).save(state(1))
    script = (
        LIMIT_FILE_SIZE
        + """
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
        checkpoint.save({"step": 2, "weights": torch.zeros(5000), "texts": ["x" * 100] * 20})
    except WriteError as error:
        print("told")
"""
    )
    output = rest(start(script, str(tmp_path)))
    assert output.split() == ["told"] * 4
    assert Checkpoint(tmp_path).load().state["step"] == 1
    assert not list(tmp_path.glob(".*"))


def test_another_format_is_refused_and_not_taken_for_damage(saved, monkeypatch):
    monkeypatch.setattr("fopng.lab.storage.checkpoint.FORMAT", 1)
    with pytest.raises(CheckpointError, match=r"Expected a checkpoint of format 1 .* got 2"):
        Checkpoint(saved).load()
