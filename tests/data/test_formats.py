import pickle
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

import tiny
from fopng.lab.data import BadFileError, DataError, load
from fopng.lab.data.formats import PARTS, CifarPython, Idx

MADE = tiny.arrays(tiny.COLOURED)
GREY = tiny.arrays()
FORMATS = {
    "idx": (Idx(), tiny.idx_files(GREY), GREY),
    "binary": (tiny.BINARY, tiny.binary_files(MADE), MADE),
    **{f"python {n}": (tiny.PYTHON, tiny.pickled_files(MADE, protocol=n), MADE) for n in (2, 3, 4)},
}


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_gives_the_same_arrays(name):
    form, files, made = FORMATS[name]
    decoded = tiny.decode_and_check(form, files, tiny.contents(made))
    for part in PARTS:
        np.testing.assert_array_equal(decoded[part], made[part])
    np.testing.assert_array_equal(form.test_labels(tiny.reader(files), tiny.contents(made)), made["test-labels"])


@given(st.data())
def test_no_damaged_file_is_accepted(data):
    """Some bytes of a pickle carry nothing (file names): then the arrays are still the right ones."""
    form, files, made = FORMATS[data.draw(st.sampled_from(sorted(FORMATS)))]
    name = data.draw(st.sampled_from(sorted(files)))
    damaged = data.draw(tiny.damages(files, name))
    decoded = tiny.decode_and_check(form, {**files, name: damaged}, tiny.contents(made))
    assert isinstance(decoded, str) or all(np.array_equal(decoded[part], made[part]) for part in PARTS)


def test_a_format_names_the_file_that_is_wrong():
    for form, files, made in FORMATS.values():
        name = form.files[0]
        message = tiny.decode_and_check(form, {**files, name: b"\0\0\x08\x01"}, tiny.contents(made))
        assert message.startswith(f"{name}: Expected")


def test_dotted_names():
    assert Idx().files[0] == "train-images-idx3-ubyte"
    assert Idx(".").files[3] == "t10k-labels.idx1-ubyte"


def bomb():
    raise AssertionError("unpickled")


class Bomb:
    def __reduce__(self):
        return bomb, ()


def test_nothing_is_unpickled():
    files = tiny.pickled_files(MADE)
    batch = pickle.loads(files["one"])
    assert isinstance(
        tiny.decode_and_check(tiny.PYTHON, {**files, "one": pickle.dumps(Bomb())}, tiny.contents(MADE)), str
    )
    armed = pickle.dumps({**batch, "bomb": Bomb()}, protocol=2)
    decoded = tiny.decode_and_check(tiny.PYTHON, {**files, "one": armed}, tiny.contents(MADE))
    np.testing.assert_array_equal(decoded["train-images"], MADE["train-images"])


def test_the_labels_are_those_behind_the_key():
    form = CifarPython(("one", "two"), "test", labels_key=b"fine_labels")
    half = tiny.TRAIN // 2
    parts = {"one": ("train", slice(half)), "two": ("train", slice(half, None)), "test": ("test", slice(None))}
    files = {}
    for name, (part, rows) in parts.items():
        pixels, labels = MADE[f"{part}-images"][rows], MADE[f"{part}-labels"][rows]
        batch = {
            "coarse_labels": [0] * len(labels),
            "fine_labels": labels.tolist(),
            "data": pixels.reshape(len(labels), -1),
        }
        files[name] = pickle.dumps(batch, protocol=2)
    decoded = tiny.decode_and_check(form, files, tiny.contents(MADE))
    np.testing.assert_array_equal(decoded["train-labels"], MADE["train-labels"])


def picture(path, value, size=(4, 5), mode="RGB"):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new(mode, size, value).save(path)


class TestFolders:
    def test_a_folder_a_class(self, tmp_path):
        for number in range(10):
            picture(tmp_path / "pets" / "cat" / f"{number}.png", (number, 0, 0))
            picture(tmp_path / "pets" / "dog" / f"{number}.jpg", (0, 0, 200))
        (tmp_path / "pets" / "dog" / "notes.txt").write_text("not an image")
        images = load(str(tmp_path / "pets"))
        assert images.name == "pets"
        assert images.class_names == ("cat", "dog")
        assert images.input_shape == (3, 5, 4)
        assert images.train.labels.tolist() == [0] * 8 + [1] * 8
        assert images.test.inputs[:2, 0, 0, 0].tolist() == [8, 9]

    def test_train_and_test_folders_of_grey_images(self, tmp_path):
        for part, count in (("train", 3), ("test", 2)):
            for name, value in (("a", 10), ("b", 20)):
                for number in range(count):
                    picture(tmp_path / part / name / f"{number}.png", value, mode="L")
        images = load(str(tmp_path))
        assert images.input_shape == (1, 5, 4)
        assert (len(images.train.labels), len(images.test.labels)) == (6, 4)
        assert images.test.inputs[:, 0, 0, 0].tolist() == [10, 10, 20, 20]

    @pytest.mark.parametrize(
        ("names", "error", "problem"),
        [
            ([], DataError, "got no folders"),
            (["a/notes.txt"], DataError, "Expected images of the class 'a'"),
            (["a/1.png", "a/large.png"], BadFileError, r"large\.png: Expected an image of shape \(3, 5, 4\)"),
            (["a/1.png", "a/text.png"], BadFileError, r"text\.png: Expected an image"),
            (["a/1.png"], ValueError, "5 samples or more of each class, got 1"),
        ],
    )
    def test_folders_are_checked(self, tmp_path, names, error, problem):
        for name in names:
            picture(tmp_path / name, 0, size=(6, 6) if "large" in name else (4, 5)) if name.endswith("png") else None
            if "t" in name.partition("/")[2].partition(".")[0]:
                (tmp_path / name).parent.mkdir(exist_ok=True)
                (tmp_path / name).write_text("no image")
        with pytest.raises(error, match=problem):
            load(str(tmp_path))

    def test_without_pillow_it_says_what_to_install(self, tmp_path, monkeypatch):
        picture(tmp_path / "a" / "1.png", 0)
        monkeypatch.setitem(sys.modules, "PIL", None)
        with pytest.raises(DataError, match=r"fopng\[images\]"):
            load(str(tmp_path))
