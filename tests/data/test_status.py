import pytest

import tiny
from fopng.lab.data.cache import arrays_folder, save_arrays
from fopng.lab.data.catalog import DATASETS
from fopng.lab.data.status import status, verify

pytestmark = pytest.mark.usefixtures("empty_machine")

MADE = tiny.arrays()
DATASET = tiny.dataset(MADE)


def test_from_missing_to_files_to_decoded(tmp_path):
    assert status(DATASET).state == "missing"
    tiny.write(tmp_path / "own", tiny.idx_files(MADE))
    found = status(DATASET, tmp_path / "own")
    assert (found.state, found.place) == ("files", tmp_path / "own")
    assert found.size == sum(len(data) for data in tiny.idx_files(MADE).values())
    save_arrays("tiny", MADE)
    assert status(DATASET).place == arrays_folder("tiny")
    assert status(DATASET).size > 1000


def test_embedded():
    assert status(DATASETS["digits"]).state == "embedded"


def test_every_copy_is_verified(tmp_path):
    assert verify(DATASET) == []
    save_arrays("tiny", MADE)
    tiny.write(tmp_path / "own", tiny.idx_files(tiny.arrays(seed=1)))
    right, wrong = verify(DATASET, tmp_path / "own")
    assert right.problem is None
    assert "other contents" in wrong.problem


def test_damage_in_the_cache_is_found():
    save_arrays("tiny", MADE)
    file = arrays_folder("tiny") / "test-images.npy"
    file.write_bytes(tiny.flipped(file.read_bytes(), 200, 1))
    (check,) = verify(DATASET)
    assert "fopng data fetch tiny --again" in check.problem
    file.unlink()
    (check,) = verify(DATASET)
    assert "four whole .npy files" in check.problem
