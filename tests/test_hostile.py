"""Files that somebody made to do harm: refused in a sentence, never run, never read beyond what they may be."""

import hashlib
import json
import pickle
import struct

import pytest

import tiny
from fopng.lab.data.errors import BadFileError
from fopng.lab.runs.result import result_text
from fopng.lab.runs.settings import read_toml
from fopng.lab.storage import parsing
from fopng.lab.storage.checkpoint import SLOTS, Checkpoint, CheckpointError
from sample_runs import result

DEEP = b"[" * 200_000


def lying(header, body=b"", length=None):
    """A checkpoint whose SHA-256 is right, with any header."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    content = struct.pack("<Q", len(text) if length is None else length) + text + body
    return hashlib.sha256(content).digest() + content


def facts(**changes):
    found = {"format": 3, "generation": 1, "state": {"dict": []}, **changes}
    return {"__metadata__": {"facts": json.dumps(found)}}


LIES = {
    "a header without end": lying(b"{}", length=2**63),
    "a header that is none": lying(b"\0" * 64),
    "no facts": lying({"__metadata__": {}}),
    "facts too deep": lying({"__metadata__": {"facts": DEEP.decode()}}),
    "a generation in words": lying(facts(generation="first")),
    "a tensor beyond the file": lying(
        {**facts(), "t": {"dtype": "F32", "shape": [10**9], "data_offsets": [0, 4 * 10**9]}}
    ),
    "a tensor that is not there": lying(facts(state={"tensor": "t"})),
    "a dtype that is code": lying(facts(state={"bytes": ["t", "load", [1]]})),
    "a state of no kind": lying(facts(state={"run": "me"})),
    "two kinds": lying(facts(state={"dict": [], "tuple": []})),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_checkpoint_with_a_lying_header_is_refused(tmp_path, lie):
    (tmp_path / SLOTS[0]).write_bytes(LIES[lie])
    with pytest.raises(CheckpointError, match="Expected a checkpoint"):
        Checkpoint(tmp_path).load()


@pytest.mark.parametrize("content", [b"a = " + DEEP, b"a = 1\n" * 200_000, b"\xff\xfe", b"a = " + b"9" * 10_000])
def test_toml_of_absurd_size_or_depth(tmp_path, content):
    (tmp_path / "x.toml").write_bytes(content)
    with pytest.raises(ValueError, match="Expected TOML"):
        read_toml(tmp_path / "x.toml", "settings")


def test_json_of_absurd_size_or_depth(tmp_path, monkeypatch):
    with pytest.raises(ValueError, match="too deep"):
        parsing.parse_json(DEEP)
    monkeypatch.setattr(parsing, "LARGEST_JSON", 10)
    (tmp_path / "x.json").write_text("[1, 2, 3, 4, 5]")
    with pytest.raises(ValueError, match="Expected at most 10 bytes"):
        parsing.read_json(tmp_path / "x.json")


class Harmful:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return open, (str(self.path), "w")


def test_a_pickle_is_listed_and_not_run(tmp_path):
    made = tiny.arrays(tiny.COLOURED)
    files = {**tiny.pickled_files(made), "one": pickle.dumps(Harmful(tmp_path / "done"))}
    with pytest.raises(BadFileError):
        tiny.PYTHON.decode(tiny.reader(files), tiny.contents(made))
    assert not (tmp_path / "done").exists()


def test_what_a_result_names_is_not_imported(tmp_path, command_line, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "harmful.py").write_text(f"open({str(tmp_path / 'done')!r}, 'w')")
    named = result(benchmark="harmful:stream", model="harmful:model", dataset="harmful:data")
    folder = tmp_path / "runs" / "b" / "m" / named.config.key
    folder.mkdir(parents=True)
    (folder / "result.json").write_text(result_text(named))
    (folder / "config.json").write_text(json.dumps(named.config.as_dict()))
    for words in (
        ("show",),
        ("show", named.config.key[:6]),
        ("watch", "--json"),
        ("export", "runs", "results"),
        ("restore", "results", "new"),
        ("report", "runs", "-o", "r.html"),
        ("report", "runs", "-o", "r.csv"),
    ):
        code, _, err = command_line(*words)
        assert code == 0, err
    assert not (tmp_path / "done").exists()


def test_control_characters_in_names_do_not_reach_a_terminal(tmp_path, command_line, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=r"without control characters, got 'b\\x1b\[2Jx'"):
        result(benchmark="b\x1b[2Jx")
    folder = tmp_path / "runs" / "b" / "m" / "0123456789abcdef"
    folder.mkdir(parents=True)
    text = result_text(result()).replace('"split-mnist"', '"b\\u001b[2Jx"')
    (folder / "result.json").write_text(text.replace('"format": 3', '"format": 2'))
    (folder / "config.json").write_text(json.dumps({**result().config.as_dict(), "method": "m\x07\x9b31m"}))
    for words in (("show",), ("show", "0123"), ("watch", "--json"), ("report", "runs", "-o", "r.csv")):
        _, out, err = command_line(*words)
        assert not {character for character in out + err if not character.isprintable()} - {"\n"}
