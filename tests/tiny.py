"""A dataset small enough to write in every format, with digests of its own."""

import gzip
import io
import json
import pickle
import struct
import tarfile

import numpy as np
from hypothesis import strategies as st
from PIL import Image

from fopng.lab.data.catalog import Dataset
from fopng.lab.data.cifar import CifarBinary, CifarPickle, CifarSprites
from fopng.lab.data.contents import PARTS, Contents, digest
from fopng.lab.data.errors import BadFileError
from fopng.lab.data.idx import Idx
from fopng.lab.data.layouts import FolderLayout

GREY = (1, 6, 5)
COLOURED = (3, 4, 4)
TRAIN, TEST, CLASSES = 40, 12, 3

BINARY = CifarBinary(("one.bin", "two.bin"), "test.bin", label_bytes=2)
PICKLED = CifarPickle(("one", "two"), "test", labels_key="labels")
SPRITES = CifarSprites(("one.png", "two.png"), "test.png", "train.json", "test.json")


def arrays(image=GREY, seed=0):
    random = np.random.default_rng(seed)
    made = {}
    for part, samples in (("train", TRAIN), ("test", TEST)):
        made[f"{part}-images"] = random.integers(0, 256, (samples, *image), dtype=np.uint8)
        made[f"{part}-labels"] = np.arange(samples, dtype=np.uint8) % CLASSES
    return made


def contents(made):
    image = made["train-images"].shape[1:]
    return Contents(image, TRAIN, TEST, CLASSES, {part: digest(made[part]) for part in PARTS})


def dataset(made=None, layouts=None, sources=()):
    made = arrays() if made is None else made
    layouts = (FolderLayout(Idx(), (".", "raw")),) if layouts is None else layouts
    return Dataset("tiny", "a tiny dataset", contents(made), ("a", "b", "c"), layouts=layouts, sources=sources)


def idx_bytes(array):
    return bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


def idx_files(made=None):
    made = arrays() if made is None else made
    squeezed = {part: made[part][:, 0] if part.endswith("images") else made[part] for part in PARTS}
    return {file: idx_bytes(squeezed[part]) for part, file in Idx().files.items()}


def zipped(files):
    return {f"{name}.gz": gzip.compress(data, mtime=0) for name, data in files.items()}


def binary_files(made):
    rows = {}
    for part in ("train", "test"):
        labels = made[f"{part}-labels"][:, None]
        pixels = made[f"{part}-images"].reshape(len(labels), -1)
        rows[part] = np.concatenate([np.full_like(labels, 9), labels, pixels], axis=1)
    half = TRAIN // 2
    return {
        "one.bin": rows["train"][:half].tobytes(),
        "two.bin": rows["train"][half:].tobytes(),
        "test.bin": rows["test"].tobytes(),
    }


def pickled_batch(images, labels, protocol=2):
    batch = {"data": images.reshape(len(labels), -1), "labels": labels.tolist(), "filenames": ["x.png"] * len(labels)}
    return pickle.dumps(batch, protocol=protocol)


def pickled_files(made, protocol=2):
    half, images, labels = TRAIN // 2, made["train-images"], made["train-labels"]
    return {
        "one": pickled_batch(images[:half], labels[:half], protocol),
        "two": pickled_batch(images[half:], labels[half:], protocol),
        "test": pickled_batch(made["test-images"], made["test-labels"], protocol),
    }


def sprite(images):
    rows = images.transpose(0, 2, 3, 1).reshape(len(images), -1, 3)
    stream = io.BytesIO()
    Image.fromarray(rows).save(stream, "PNG")
    return stream.getvalue()


def sprite_files(made):
    half = TRAIN // 2
    return {
        "one.png": sprite(made["train-images"][:half]),
        "two.png": sprite(made["train-images"][half:]),
        "test.png": sprite(made["test-images"]),
        "train.json": json.dumps(made["train-labels"].tolist()).encode(),
        "test.json": json.dumps(made["test-labels"].tolist()).encode(),
    }


def tar_bytes(files, prefix="", links=()):
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz") as archive:
        for name, data in files.items():
            member = tarfile.TarInfo(prefix + name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
        for name, target in links:
            member = tarfile.TarInfo(name)
            member.type, member.linkname = tarfile.SYMTYPE, target
            archive.addfile(member)
    return stream.getvalue()


def write(folder, files):
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in files.items():
        (folder / name).write_bytes(data)
    return folder


def attempt(read, *arguments):
    """What a reader gives and no message, or nothing and its refusal; any other error is a crash and goes through."""
    try:
        return read(*arguments), None
    except BadFileError as error:
        return None, str(error)


def flipped(data, position, change):
    return data[:position] + bytes([data[position] ^ change]) + data[position + 1 :]


def damages(files, name):
    """Ways to spoil one of several files: cut, put bytes before or behind, changed, mixed up with another, made up."""
    whole = files[name]
    position = st.integers(0, len(whole) - 1)
    extra = st.binary(min_size=1, max_size=20)
    return st.one_of(
        position.map(lambda end: whole[:end]),
        extra.map(lambda more: whole + more),
        extra.map(lambda more: more + whole),
        st.tuples(position, st.integers(1, 255)).map(lambda at: flipped(whole, *at)),
        st.sampled_from([files[other] for other in files if other != name]),
        st.binary(max_size=50),
    )
