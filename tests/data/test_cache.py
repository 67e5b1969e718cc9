import multiprocessing
import sys
from pathlib import Path

import numpy as np
import pytest

import tiny
from fopng.lab.data.cache import arrays_folder, cache_folder, locked, open_arrays, save_arrays
from fopng.lab.data.contents import PARTS

MADE = tiny.arrays()
KNOWN = tiny.contents(MADE)


def test_where_the_cache_is(monkeypatch):
    monkeypatch.setenv("FOPNG_CACHE", "/own")
    assert cache_folder() == Path("/own")
    monkeypatch.delenv("FOPNG_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", "/xdg")
    assert cache_folder() == Path("/xdg/fopng")
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", "/home/someone")
    monkeypatch.setattr(sys, "platform", "linux")
    assert cache_folder() == Path("/home/someone/.cache/fopng")
    monkeypatch.setattr(sys, "platform", "darwin")
    assert cache_folder() == Path("/home/someone/Library/Caches/fopng")


@pytest.mark.usefixtures("empty_machine")
class TestArrays:
    def test_they_come_back_as_mapped_memory_that_cannot_be_written(self):
        save_arrays("tiny", MADE)
        arrays = open_arrays("tiny", KNOWN)
        for part in PARTS:
            np.testing.assert_array_equal(arrays[part], MADE[part])
            assert isinstance(arrays[part].base, np.memmap)
            assert not arrays[part].flags.writeable

    def test_none_before_they_are_saved(self):
        assert open_arrays("tiny", KNOWN) is None

    @pytest.mark.parametrize("part", PARTS)
    def test_a_missing_cut_or_foreign_file_is_no_cache(self, part):
        file = arrays_folder("tiny") / f"{part}.npy"
        for damage in (
            file.unlink,
            lambda: file.write_bytes(b""),
            lambda: file.write_bytes(file.read_bytes()[:-1]),
            lambda: np.save(file, MADE[part][1:]),
            lambda: np.save(file, MADE[part].astype(np.int64)),
            lambda: np.save(file, np.array([{"a": 1}], dtype=object)),
        ):
            save_arrays("tiny", MADE)
            damage()
            assert open_arrays("tiny", KNOWN) is None

    def test_a_damaged_copy_is_replaced_and_nothing_is_left_over(self):
        save_arrays("tiny", MADE)
        (arrays_folder("tiny") / "test-labels.npy").unlink()
        save_arrays("tiny", MADE)
        assert open_arrays("tiny", KNOWN) is not None
        assert [path.name for path in arrays_folder("tiny").parent.iterdir()] == ["tiny"]

    def test_a_write_that_fails_leaves_nothing(self):
        with pytest.raises(KeyError):
            save_arrays("tiny", {"train-images": MADE["train-images"]})
        assert list(arrays_folder("tiny").parent.iterdir()) == []

    def test_two_processes_can_save_at_once(self):
        context = multiprocessing.get_context("spawn")
        both = [context.Process(target=save_often) for _ in range(2)]
        for process in both:
            process.start()
        for process in both:
            process.join(60)
        assert [process.exitcode for process in both] == [0, 0]
        assert open_arrays("tiny", KNOWN) is not None


def save_often():
    for _ in range(20):
        with locked("tiny"):
            save_arrays("tiny", MADE)
            assert open_arrays("tiny", KNOWN) is not None
