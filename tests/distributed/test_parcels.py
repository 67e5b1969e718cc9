"""Files on their way: what travels, what arrives, and that nothing travels twice."""

import pytest

from fopng.lab.cluster.parcels import Outgoing, Parcel

RUN = "split-digits/sgd/0123"


@pytest.fixture
def root(tmp_path):
    (tmp_path / RUN).mkdir(parents=True)
    return tmp_path


def test_a_change_travels_once(root):
    (root / RUN / "checkpoint.0").write_bytes(b"there already")
    outgoing = Outgoing(root)
    assert not outgoing.changes()
    (root / RUN / "checkpoint.1").write_bytes(b"tensors")
    (root / RUN / "lock").write_bytes(b"mine")
    (root / RUN / ".checkpoint.0.ab.partial").write_bytes(b"half")
    assert outgoing.changes() == Parcel({f"{RUN}/checkpoint.1": b"tensors"})
    assert not outgoing.changes()


def test_of_a_log_what_was_added(root):
    outgoing, log = Outgoing(root), root / RUN / "log.jsonl"
    log.write_bytes(b"one\n")
    assert outgoing.changes().added == {f"{RUN}/log.jsonl": b"one\n"}
    with log.open("ab") as file:
        file.write(b"two\n")
    assert outgoing.changes().added == {f"{RUN}/log.jsonl": b"two\n"}


def test_two_in_one_arrive_as_two_in_turn(tmp_path):
    first = Parcel({"a/checkpoint.0": b"1", "b/wave.json": b"w"}, {"a/log.jsonl": b"x", "b/log.jsonl": b"y"})
    second = Parcel({"a/checkpoint.0": b"2"}, {"a/log.jsonl": b"z", "c/log.jsonl": b"c"})
    first.unpack(tmp_path / "in turn")
    second.unpack(tmp_path / "in turn")
    second.after(first).unpack(tmp_path / "in one")
    assert files(tmp_path / "in turn") == files(tmp_path / "in one")
    assert files(tmp_path / "in one")["a/log.jsonl"] == b"xz"


def files(root):
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def test_results_are_taken_out(root):
    parcel = Parcel({f"{RUN}/result.json": b"{}", f"{RUN}/checkpoint.0": b"1"}, {f"{RUN}/log.jsonl": b"x"})
    results, rest = parcel.take_results()
    assert results == {"0123": b"{}"}
    assert rest == Parcel({f"{RUN}/checkpoint.0": b"1"}, {f"{RUN}/log.jsonl": b"x"})


@pytest.mark.parametrize("name", ["/etc/passwd", "../up", "a/../../up"])
def test_nothing_is_written_outside(name, tmp_path):
    with pytest.raises(ValueError, match="below the folder of the runs"):
        Parcel({name: b""}).unpack(tmp_path)
