import gzip
import io
import tarfile

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tiny
from fopng.lab.data.errors import BadFileError
from fopng.lab.data.files import Archive, Folder

FILES = {"a": b"first", "b": b"second"}
LIMITS = {"a": 5, "b": 6}


def test_plain_and_gzipped_files(tmp_path):
    tiny.write(tmp_path, {"a": b"first", "b.gz": gzip.compress(b"second")})
    folder = Folder(tmp_path, ("a", "b"))
    assert folder.complete()
    assert folder.read(LIMITS) == FILES


def test_an_incomplete_folder(tmp_path):
    tiny.write(tmp_path, {"a": b"first"})
    folder = Folder(tmp_path, ("a", "b"))
    assert not folder.complete()
    with pytest.raises(BadFileError, match="Expected a file, got none"):
        folder.read(LIMITS)


@pytest.mark.parametrize("name", ["a", "a.gz"])
def test_oversized_files_are_not_read_to_their_end(tmp_path, name):
    data = b"x" * 1_000_000
    tiny.write(tmp_path, {name: gzip.compress(data) if name.endswith("gz") else data})
    with pytest.raises(BadFileError, match="at most 5 bytes, got more"):
        Folder(tmp_path, ("a",)).read({"a": 5})


@given(cut=st.integers(0, 40))
@settings(max_examples=30)
def test_a_cut_gzip_file(cut, tmp_path_factory):
    whole = gzip.compress(b"first" * 4, mtime=0)
    folder = tmp_path_factory.mktemp("cut")
    tiny.write(folder, {"a.gz": whole[: min(cut, len(whole) - 1)]})
    if cut == 0:  # no members at all is an empty stream; the decoder refuses it
        assert Folder(folder, ("a",)).read({"a": 100}) == {"a": b""}
        return
    with pytest.raises(BadFileError, match="whole gzip file"):
        Folder(folder, ("a",)).read({"a": 100})


def archive(tmp_path, data, prefix="inside/"):
    (tmp_path / "archive.tar.gz").write_bytes(data)
    return Archive(tmp_path / "archive.tar.gz", prefix)


def test_members_are_read_without_unpacking(tmp_path):
    made = archive(tmp_path, tiny.tar_bytes({**FILES, "other": b"left alone"}, "inside/"))
    assert made.read(LIMITS) == FILES
    assert [path.name for path in tmp_path.iterdir()] == ["archive.tar.gz"]


@pytest.mark.parametrize("name", ["../evil", "inside/../../evil", "/etc/evil", "..\\evil"])
def test_a_path_that_climbs_out_refuses_the_archive(tmp_path, name):
    made = archive(tmp_path, tiny.tar_bytes({"inside/a": b"first", "inside/b": b"second", name: b"evil"}))
    with pytest.raises(BadFileError, match="Expected paths inside the archive"):
        made.read(LIMITS)


def test_a_link_is_not_followed(tmp_path):
    (tmp_path / "secret").write_bytes(b"first")
    made = archive(tmp_path, tiny.tar_bytes({"inside/b": b"second"}, links=[("inside/a", str(tmp_path / "secret"))]))
    with pytest.raises(BadFileError, match="Expected inside/a inside, got none"):
        made.read(LIMITS)


def test_an_oversized_member(tmp_path):
    with pytest.raises(BadFileError, match="at most 5 bytes"):
        archive(tmp_path, tiny.tar_bytes({"a": b"x" * 100_000, "b": b""}, "inside/")).read(LIMITS)


@given(data=st.data())
def test_a_damaged_archive_is_refused_or_read(data, tmp_path_factory):
    """Whether what was read is right is for the digests to say; here nothing may crash or go missing."""
    whole = tiny.tar_bytes(FILES, "inside/")
    damaged = bytearray(whole[: data.draw(st.integers(0, len(whole)))])
    if damaged:
        damaged[data.draw(st.integers(0, len(damaged) - 1))] ^= data.draw(st.integers(0, 255))
    made = archive(tmp_path_factory.mktemp("damaged"), bytes(damaged))
    read, refusal = tiny.attempt(made.read, LIMITS)
    assert "archive.tar.gz" in refusal if refusal else read.keys() == FILES.keys()


@given(data=st.data())
def test_a_damaged_plain_tar_is_refused_or_read(data, tmp_path_factory):
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as made:
        for name, content in FILES.items():
            member = tarfile.TarInfo(f"inside/{name}")
            member.size = len(content)
            made.addfile(member, io.BytesIO(content))
    damaged = bytearray(stream.getvalue()[:3000])
    for position in data.draw(st.lists(st.integers(0, len(damaged) - 1), max_size=3)):
        damaged[position] = data.draw(st.integers(0, 255))
    read, refusal = tiny.attempt(archive(tmp_path_factory.mktemp("plain"), bytes(damaged)).read, LIMITS)
    assert "archive.tar.gz" in refusal if refusal else read.keys() == FILES.keys()
