import numpy as np
import pytest

import fopng.lab.data.layouts
import tiny
from fopng.lab.data.cache import arrays_folder
from fopng.lab.data.catalog import DATASETS, find_dataset
from fopng.lab.data.contents import PARTS
from fopng.lab.data.errors import DatasetMissingError
from fopng.lab.data.idx import Idx
from fopng.lab.data.layouts import ArchiveLayout, FolderLayout, roots
from fopng.lab.data.library import by_hand, load_arrays, locate

pytestmark = pytest.mark.usefixtures("empty_machine")

MADE = tiny.arrays()
IDX = tiny.idx_files(MADE)
COLOURED = tiny.arrays(tiny.COLOURED)


def same(arrays, made=MADE):
    return all(np.array_equal(arrays[part], made[part]) for part in PARTS)


@pytest.mark.parametrize("files", [IDX, tiny.zipped(IDX)], ids=["plain", "gzipped"])
@pytest.mark.parametrize("folder", [".", "raw", "tiny", "tiny/raw"])
def test_files_below_the_data_folder(tmp_path, files, folder):
    tiny.write(tmp_path / "own" / folder, files)
    assert same(load_arrays(tiny.dataset(MADE), tmp_path / "own"))


@pytest.mark.parametrize(
    ("form", "files"),
    [
        (tiny.BINARY, tiny.binary_files(COLOURED)),
        (tiny.PICKLED, tiny.pickled_files(COLOURED)),
        (tiny.SPRITES, tiny.sprite_files(COLOURED)),
    ],
    ids=["binary", "pickled", "sprites"],
)
def test_folders_and_archives_of_every_format(tmp_path, form, files):
    for number, layout in enumerate((FolderLayout(form, ("sub",)), ArchiveLayout(form, "a.tar.gz", "sub/"))):
        own = tmp_path / str(number)
        tiny.write(own / "sub", files) if number == 0 else tiny.write(own, {"a.tar.gz": tiny.tar_bytes(files, "sub/")})
        found = next(iter(locate(tiny.dataset(COLOURED, layouts=(layout,)), own)))
        assert same(found.decode(tiny.contents(COLOURED)), COLOURED)


def test_the_order_of_the_places(tmp_path, monkeypatch):
    monkeypatch.setenv("FOPNG_DATA", str(tmp_path / "environment"))
    places = roots("tiny", None)
    assert places[:4] == [
        tmp_path / "environment" / "tiny",
        tmp_path / "environment",
        tmp_path / "cache" / "tiny",
        tmp_path / "cache",
    ]
    assert places[-1] == fopng.lab.data.layouts.SYSTEM_FOLDER
    assert roots("tiny", tmp_path / "option")[0] == tmp_path / "option" / "tiny"


def test_the_environment_names_a_folder(tmp_path, monkeypatch):
    tiny.write(tmp_path / "own", IDX)
    monkeypatch.setenv("FOPNG_DATA", str(tmp_path / "own"))
    assert same(load_arrays(tiny.dataset(MADE)))


@pytest.mark.parametrize("place", ["cache/tiny", "work/data", "home/data", "home/.keras/datasets/tiny", "system/tiny"])
def test_places_that_are_always_looked_in(tmp_path, place):
    tiny.write(tmp_path / place, IDX)
    assert same(load_arrays(tiny.dataset(MADE)))


def test_the_second_load_needs_no_files(tmp_path):
    tiny.write(tmp_path / "own", IDX)
    load_arrays(tiny.dataset(MADE), tmp_path / "own")
    for path in (tmp_path / "own").iterdir():
        path.unlink()
    assert same(load_arrays(tiny.dataset(MADE)))


def test_wrong_files_are_passed_over_for_right_ones(tmp_path):
    tiny.write(tmp_path / "own", tiny.idx_files(tiny.arrays(seed=1)))
    tiny.write(tmp_path / "cache" / "tiny", IDX)
    assert same(load_arrays(tiny.dataset(MADE), tmp_path / "own"))


def test_wrong_files_alone_are_named(tmp_path):
    tiny.write(tmp_path / "own", tiny.idx_files(tiny.arrays(seed=1)))
    with pytest.raises(DatasetMissingError, match="these files are not it") as caught:
        load_arrays(tiny.dataset(MADE), tmp_path / "own")
    assert f"{tmp_path / 'own'}: Expected the known train-images" in str(caught.value)
    assert "fopng data fetch tiny" in str(caught.value)
    assert not arrays_folder("tiny").exists()


def test_nothing_found():
    with pytest.raises(DatasetMissingError, match="in none of the places that were looked in"):
        load_arrays(tiny.dataset(MADE))


def test_a_damaged_cache_is_decoded_again(tmp_path):
    tiny.write(tmp_path / "own", IDX)
    load_arrays(tiny.dataset(MADE), tmp_path / "own")
    (arrays_folder("tiny") / "train-images.npy").write_bytes(b"")
    assert same(load_arrays(tiny.dataset(MADE), tmp_path / "own"))


def test_a_cache_that_cannot_be_written_only_warns(tmp_path, monkeypatch):
    tiny.write(tmp_path / "own", IDX)
    (tmp_path / "file").write_bytes(b"")
    monkeypatch.setenv("FOPNG_CACHE", str(tmp_path / "file"))
    with pytest.warns(UserWarning, match="set FOPNG_CACHE to one"):
        assert same(load_arrays(tiny.dataset(MADE), tmp_path / "own"))


LAYOUTS_OF_OTHERS = [
    ("mnist", "MNIST/raw", tuple(Idx().files.values())),
    ("mnist", ".", tuple(f"{name}.gz" for name in Idx().files.values())),
    ("mnist", "mnist", tuple(Idx(dotted=True).files.values())),
    ("fashion-mnist", "FashionMNIST/raw", tuple(Idx().files.values())),
    ("fashion-mnist", "fashion-mnist", tuple(f"{name}.gz" for name in Idx().files.values())),
    ("cifar10", "cifar-10-batches-bin", (*(f"data_batch_{n}.bin" for n in range(1, 6)), "test_batch.bin")),
    ("cifar10", "cifar-10-batches-py", (*(f"data_batch_{n}" for n in range(1, 6)), "test_batch")),
    ("cifar10", ".", ("cifar-10-binary.tar.gz",)),
    ("cifar10", ".", ("cifar-10-python.tar.gz",)),
    ("cifar100", "cifar-100-binary", ("train.bin", "test.bin")),
    ("cifar100", "cifar-100-python", ("train", "test")),
    ("cifar100", ".", ("cifar-100-python.tar.gz",)),
]


@pytest.mark.parametrize(("name", "folder", "files"), LAYOUTS_OF_OTHERS, ids=str)
def test_the_layouts_that_other_tools_leave_are_recognised(tmp_path, name, folder, files):
    tiny.write(tmp_path / "own" / folder, dict.fromkeys(files, b""))
    places = [found.files.place for found in locate(DATASETS[name], tmp_path / "own")]
    assert any((place if place.is_dir() else place.parent) == tmp_path / "own" / folder for place in places)
    with pytest.raises(DatasetMissingError, match="these files are not it"):
        load_arrays(DATASETS[name], tmp_path / "own")


@pytest.mark.parametrize("name", ["mnist", "fashion-mnist", "cifar10", "cifar100"])
def test_the_catalog_says_what_to_put_by_hand(name):
    text = by_hand(DATASETS[name])
    assert text.count("\n") >= 2
    assert f"cache/{name}," in text


def test_the_catalog_is_whole():
    for name, dataset in DATASETS.items():
        assert find_dataset(name) is dataset
        assert len(dataset.class_names) == dataset.contents.classes == len(set(dataset.class_names))
        assert dataset.contents.digests.keys() == set(PARTS)
        assert all(len(bytes.fromhex(value)) == 32 for value in dataset.contents.digests.values())
        assert dataset.embedded or (dataset.layouts and dataset.sources)


def test_an_unknown_name():
    with pytest.raises(ValueError, match=r"Expected a dataset out of mnist, .*, got 'emnist'"):
        find_dataset("emnist")
