import gzip
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fopng.lab.data.library
import tiny
from fopng.lab.data.cache import arrays_folder, cache_folder, locked, open_arrays, save_arrays
from fopng.lab.data.catalog import DATASETS, KnownDataset, Layout, find_dataset
from fopng.lab.data.errors import BadFileError, DatasetMissingError
from fopng.lab.data.formats import PARTS, Idx
from fopng.lab.data.library import Found, by_hand, load_arrays, locate, roots
from fopng.lab.data.status import status, verify

pytestmark = pytest.mark.usefixtures("empty_machine")

MADE = tiny.arrays()
IDX = tiny.idx_files(MADE)
OTHER = tiny.idx_files(tiny.arrays(seed=1) | {"test-labels": MADE["test-labels"][::-1].copy()})
COLOURED = tiny.arrays(tiny.COLOURED)
DATASET = tiny.dataset(MADE)
ARCHIVE = Layout(Idx(), ("inside",), "a.tar.gz")


def same(arrays, made=MADE):
    return all(np.array_equal(arrays[part], made[part]) for part in PARTS)


@pytest.mark.parametrize("files", [IDX, tiny.zipped(IDX)], ids=["plain", "gzipped"])
@pytest.mark.parametrize("folder", [".", "raw", "tiny", "tiny/raw"])
def test_files_below_the_data_folder(tmp_path, files, folder):
    tiny.write(tmp_path / "own" / folder, files)
    assert same(load_arrays(DATASET, tmp_path / "own"))


@pytest.mark.parametrize(
    ("form", "files", "made"),
    [
        (Idx(), IDX, MADE),
        (tiny.BINARY, tiny.binary_files(COLOURED), COLOURED),
        (tiny.PYTHON, tiny.pickled_files(COLOURED), COLOURED),
    ],
)
def test_archives_are_read_without_unpacking(tmp_path, form, files, made):
    (tmp_path / "a.tar.gz").write_bytes(tiny.tar_bytes({**files, "other": b"left alone"}, "inside/"))
    dataset = tiny.dataset(made, layouts=(Layout(form, ("inside",), "a.tar.gz"),))
    assert same(load_arrays(dataset, tmp_path), made)
    assert not (tmp_path / "inside").exists()


@pytest.mark.parametrize("place", ["cache/tiny", "work/data", "home/data", "home/.keras/datasets/tiny", "system/tiny"])
def test_places_that_are_always_looked_in(tmp_path, place):
    tiny.write(tmp_path / place, IDX)
    assert same(load_arrays(DATASET))


def test_the_order_of_the_places(tmp_path, monkeypatch):
    monkeypatch.setenv("FOPNG_DATA", str(tmp_path / "environment"))
    own, cache = tmp_path / "environment", tmp_path / "cache"
    assert roots("tiny")[:4] == [own / "tiny", own, cache / "tiny", cache]
    assert roots("tiny")[-1] == fopng.lab.data.library.SYSTEM_FOLDER
    assert roots("tiny", tmp_path / "option")[0] == tmp_path / "option" / "tiny"


def test_the_cache_is_where_the_user_says(monkeypatch, tmp_path):
    assert cache_folder() == tmp_path / "cache"
    monkeypatch.delenv("FOPNG_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_folder() == tmp_path / "xdg" / "fopng"


@pytest.mark.parametrize(
    ("name", "folder", "files"),
    [
        ("mnist", "MNIST/raw", Idx().files),
        ("mnist", ".", tuple(f"{name}.gz" for name in Idx().files)),
        ("mnist", "mnist", Idx(".").files),
        ("fashion-mnist", "FashionMNIST/raw", Idx().files),
        ("cifar10", "cifar-10-batches-bin", (*(f"data_batch_{n}.bin" for n in range(1, 6)), "test_batch.bin")),
        ("cifar10", "cifar-10-batches-py", (*(f"data_batch_{n}" for n in range(1, 6)), "test_batch")),
        ("cifar10", ".", ("cifar-10-binary.tar.gz",)),
        ("cifar100", "cifar-100-binary", ("train.bin", "test.bin")),
        ("cifar100", "cifar-100-python", ("train", "test")),
        ("cifar100", ".", ("cifar-100-python.tar.gz",)),
    ],
)
def test_the_layouts_that_other_tools_leave_are_recognised(tmp_path, name, folder, files):
    tiny.write(tmp_path / "own" / folder, dict.fromkeys(files, b""))
    places = [found.place for found in locate(DATASETS[name], roots(name, tmp_path / "own"))]
    assert any((place if place.is_dir() else place.parent) == tmp_path / "own" / folder for place in places)
    with pytest.raises(DatasetMissingError, match="these files are not it"):
        load_arrays(DATASETS[name], tmp_path / "own")


def test_wrong_files_are_passed_over_for_right_ones(tmp_path):
    tiny.write(tmp_path / "own", OTHER)
    with pytest.raises(DatasetMissingError, match="these files are not it") as caught:
        load_arrays(DATASET, tmp_path / "own")
    assert f"{tmp_path / 'own'}: Expected the known train-images" in str(caught.value)
    assert "fopng data fetch tiny" in str(caught.value)
    assert not arrays_folder("tiny").exists()
    tiny.write(tmp_path / "cache" / "tiny", IDX)
    assert same(load_arrays(DATASET, tmp_path / "own"))


def test_nothing_found():
    with pytest.raises(DatasetMissingError, match="in none of the places that were looked in"):
        load_arrays(DATASET)


@pytest.mark.parametrize("name", [Idx().files[0], f"{Idx().files[0]}.gz"])
def test_oversized_files_are_not_read_to_their_end(tmp_path, name):
    data = b"x" * 1_000_000
    tiny.write(tmp_path / "own", {**IDX, name: gzip.compress(data) if name.endswith("gz") else data})
    (tmp_path / "own" / Idx().files[0]).unlink() if name.endswith("gz") else None
    assert "at most 1,216 bytes, got more" in Found(DATASET, DATASET.layouts[0], tmp_path / "own").problem()


@given(data=st.data())
def test_a_damaged_archive_or_gzip_file_is_refused_or_right(data, tmp_path_factory):
    archived = data.draw(st.booleans())
    whole = tiny.tar_bytes(IDX, "inside/") if archived else gzip.compress(IDX[Idx().files[0]], mtime=0)
    damaged = bytearray(whole[: data.draw(st.integers(0, len(whole)))])
    if damaged:
        damaged[data.draw(st.integers(0, len(damaged) - 1))] ^= data.draw(st.integers(0, 255))
    folder = tmp_path_factory.mktemp("damaged")
    name = "a.tar.gz" if archived else f"{Idx().files[0]}.gz"
    tiny.write(folder, {**dict(list(IDX.items())[1:]), name: bytes(damaged)})
    found = Found(DATASET, ARCHIVE, folder / name) if archived else Found(DATASET, DATASET.layouts[0], folder)
    problem = found.problem()
    assert str(folder) in problem if problem else same(found.decode())


def test_a_link_in_an_archive_is_not_followed(tmp_path):
    labels = Idx().files[3]
    tiny.write(tmp_path, {labels: IDX[labels]})
    rest = {name: data for name, data in IDX.items() if name != labels}
    links = [(f"inside/{labels}", str(tmp_path / labels))]
    (tmp_path / "a.tar.gz").write_bytes(tiny.tar_bytes(rest, "inside/", links=links))
    with pytest.raises(BadFileError, match=f"Expected inside/{labels} inside, got none"):
        Found(DATASET, ARCHIVE, tmp_path / "a.tar.gz").decode()


class TestCache:
    def test_arrays_come_back_as_mapped_memory_that_cannot_be_written(self):
        save_arrays("tiny", MADE)
        arrays = open_arrays("tiny", DATASET.contents)
        assert same(arrays)
        assert all(isinstance(array.base, np.memmap) and not array.flags.writeable for array in arrays.values())

    def test_a_file_that_is_opened_twice_is_one_array_until_it_is_written_anew(self):
        save_arrays("tiny", MADE)
        first, second = (open_arrays("tiny", DATASET.contents) for _ in range(2))
        assert all(first[part] is second[part] for part in PARTS)
        save_arrays("tiny", MADE)
        third = open_arrays("tiny", DATASET.contents)
        assert same(third, MADE)
        assert same(first)

    def test_the_second_load_needs_no_files(self, tmp_path):
        for path in tiny.write(tmp_path / "own", IDX).iterdir():
            assert same(load_arrays(DATASET, tmp_path / "own"))
            path.unlink()
        assert same(load_arrays(DATASET))

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
            assert open_arrays("tiny", DATASET.contents) is None

    def test_a_damaged_copy_is_replaced_and_nothing_is_left_over(self):
        save_arrays("tiny", MADE)
        (arrays_folder("tiny") / "test-labels.npy").unlink()
        save_arrays("tiny", MADE)
        with pytest.raises(KeyError):
            save_arrays("tiny", {"train-images": MADE["train-images"]})
        assert open_arrays("tiny", DATASET.contents) is not None
        assert [path.name for path in arrays_folder("tiny").parent.iterdir()] == ["tiny"]

    def test_several_can_save_and_open_at_once(self):
        """Threads here, which take the lock as processes do: tests of fetching have these."""
        with ThreadPoolExecutor(4) as pool:
            assert all(pool.map(save_and_open, range(40)))

    def test_one_that_cannot_be_written_only_warns(self, tmp_path, monkeypatch):
        tiny.write(tmp_path / "own", {**IDX, "file": b""})
        monkeypatch.setenv("FOPNG_CACHE", str(tmp_path / "own" / "file"))
        with pytest.warns(UserWarning, match="set FOPNG_CACHE to one"):
            assert same(load_arrays(DATASET, tmp_path / "own"))


def save_and_open(number):
    with locked("tiny"):
        save_arrays("tiny", MADE)
        return same(open_arrays("tiny", DATASET.contents))


class TestStatus:
    def test_from_missing_to_files_to_decoded(self, tmp_path):
        assert status(DATASET).state == "missing"
        tiny.write(tmp_path / "own", IDX)
        found = status(DATASET, tmp_path / "own")
        assert (found.state, found.place) == ("files", tmp_path / "own")
        assert found.size == sum(map(len, IDX.values()))
        save_arrays("tiny", MADE)
        assert status(DATASET).place == arrays_folder("tiny")
        assert status(DATASET).size > 1000

    def test_anothers_files_of_the_same_names(self, tmp_path):
        tiny.write(tmp_path / "own", OTHER)
        assert status(DATASET, tmp_path / "own").state == "other contents"
        tiny.write(tmp_path / "own" / "tiny", tiny.zipped(IDX))
        assert status(DATASET, tmp_path / "own").place == tmp_path / "own" / "tiny"

    def test_embedded(self):
        assert status(DATASETS["digits"]).state == "embedded"

    def test_every_copy_is_verified(self, tmp_path):
        assert verify(DATASET) == []
        save_arrays("tiny", MADE)
        tiny.write(tmp_path / "own", OTHER)
        right, wrong = verify(DATASET, tmp_path / "own")
        assert right.problem is None
        assert "other contents" in wrong.problem

    def test_damage_in_the_cache_is_found(self):
        save_arrays("tiny", MADE)
        file = arrays_folder("tiny") / "test-images.npy"
        file.write_bytes(tiny.flipped(file.read_bytes(), 200, 1))
        assert "fopng data fetch tiny --again" in verify(DATASET)[0].problem
        file.unlink()
        assert "four whole .npy files" in verify(DATASET)[0].problem


def test_the_catalog_is_whole():
    known = {name: each for name, each in DATASETS.items() if isinstance(each, KnownDataset)}
    assert list(known) == ["mnist", "fashion-mnist", "cifar10", "cifar100", "mnist-5k", "digits"]
    for name, dataset in known.items():
        assert find_dataset(name) is dataset
        assert len(dataset.class_names) == dataset.contents.classes == len(set(dataset.class_names))
        assert dataset.contents.digests.keys() == set(PARTS)
        assert all(len(bytes.fromhex(value)) == 32 for value in dataset.contents.digests.values())
        assert dataset.function or (dataset.layouts and dataset.sources)
        assert dataset.function or f"cache/{name}," in by_hand(dataset)


def test_an_unknown_name():
    with pytest.raises(ValueError, match=r"Expected a dataset out of mnist, .*, got 'emnist'. Did you mean mnist"):
        find_dataset("emnist")
