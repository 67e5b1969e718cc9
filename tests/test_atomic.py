"""A file is the old one or the new one, never something between."""

import json
import os
import random
import stat

import pytest
from hypothesis import given
from hypothesis import strategies as st

from faults import LIMIT_FILE_SIZE, kill_after, rest, start
from fopng.lab.storage import atomic

WRITE_FOREVER = """
import itertools, sys
from pathlib import Path
from fopng.lab.storage import atomic
print("ready", flush=True)
for number in itertools.count():
    atomic.write_bytes(Path(sys.argv[1]), bytes([number % 256]) * 50_000)
"""


def test_a_writer_killed_at_random_moments_leaves_a_whole_file(tmp_path):
    path = tmp_path / "file"
    generator = random.Random(1)
    for _ in range(4):
        kill_after(start(WRITE_FOREVER, str(path)), generator.uniform(0.0, 0.1))
        content = path.read_bytes() if path.exists() else b""
        assert len(set(content)) <= 1
        assert len(content) in (0, 50_000)
    atomic.remove_partials(tmp_path)
    assert [member.name for member in tmp_path.iterdir()] == ["file"]


def test_two_writers_do_not_mix(tmp_path):
    path = tmp_path / "file"
    writers = [start(WRITE_FOREVER, str(path)) for _ in range(2)]
    for writer in writers:
        kill_after(writer, 0.1)
    content = path.read_bytes()
    assert (len(content), len(set(content))) == (50_000, 1)


def test_a_full_disk_leaves_the_old_file_and_no_rubbish(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"old")
    script = (
        LIMIT_FILE_SIZE
        + """
import sys
from pathlib import Path
from fopng.lab.storage import atomic
limit(1000)
print("ready", flush=True)
try:
    atomic.write_bytes(Path(sys.argv[1]), b"x" * 5000)
except atomic.WriteError as error:
    print(error)
"""
    )
    output = rest(start(script, str(path)))
    assert "File too large. What was saved before is unchanged." in output
    assert [(member.name, member.read_bytes()) for member in tmp_path.iterdir()] == [("file", b"old")]


def test_a_folder_that_is_not_there_is_a_clear_error(tmp_path):
    with pytest.raises(atomic.WriteError, match=r"No such file or directory\. What was saved before is unchanged"):
        atomic.write_text(tmp_path / "no" / "file", "x")


def test_files_are_as_open_to_others_as_the_user_wishes(tmp_path):
    mask = os.umask(0o022)
    try:
        atomic.write_text(tmp_path / "file", "x")
    finally:
        os.umask(mask)
    assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == 0o644


def json_values():
    leaves = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
    return st.recursive(leaves, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=20)


@given(json_values())
def test_readable_json_is_json(value):
    assert json.loads(atomic.readable_json(value)) == value


def test_readable_json_refuses_what_is_not_json():
    with pytest.raises(ValueError):
        atomic.readable_json([float("nan")])
