"""A dataset small enough to write in every format, with digests of its own."""

import gzip
import io
import pickle
import struct
import tarfile

import numpy as np
from hypothesis import strategies as st

from fopng.lab.data.catalog import KnownDataset, Layout
from fopng.lab.data.errors import BadFileError
from fopng.lab.data.formats import PARTS, CifarBinary, CifarPython, Contents, Idx, digest

GREY = (1, 6, 5)
COLOURED = (3, 4, 4)
TRAIN, TEST, CLASSES = 40, 12, 3

BINARY = CifarBinary(("one.bin", "two.bin"), "test.bin", label_bytes=2)
PYTHON = CifarPython(("one", "two"), "test", labels_key=b"labels")


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
    layouts = (Layout(Idx(), (".", "raw")),) if layouts is None else layouts
    return KnownDataset("tiny", contents=contents(made), class_names=("a", "b", "c"), layouts=layouts, sources=sources)


def idx_bytes(array):
    return bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


def idx_files(made=None):
    made = arrays() if made is None else made
    squeezed = {part: made[part][:, 0] if part.endswith("images") else made[part] for part in PARTS}
    return {file: idx_bytes(squeezed[part]) for part, file in zip(PARTS, Idx().files, strict=True)}


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


def reader(files):
    """How a format reads these files."""
    return lambda name, limit: files[name]


def decode_and_check(form, files, known):
    """The arrays, or a message when the files are refused; any other error is a crash and goes through."""
    try:
        decoded = form.decode(reader(files), known)
        known.check(decoded, "here")
        return decoded
    except BadFileError as error:
        return str(error)


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
