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
    atomic.write_bytes(Path(sys.argv[1]), bytes([number % 256]) * 25_000, bytes([number % 256]) * 25_000)
"""


def test_writers_killed_at_random_moments_leave_a_whole_file(tmp_path):
    path = tmp_path / "file"
    generator = random.Random(1)
    for _ in range(3):
        for writer in [start(WRITE_FOREVER, str(path)) for _ in range(2)]:
            kill_after(writer, generator.uniform(0.0, 0.1))
        content = path.read_bytes() if path.exists() else b""
        assert (len(content), len(set(content))) in ((50_000, 1), (0, 0))
    atomic.remove_partials(tmp_path)
    assert [member.name for member in tmp_path.iterdir()] == ["file"]


def test_a_full_disk_leaves_the_old_file_and_no_rubbish(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"old")
    script = f"""{LIMIT_FILE_SIZE}
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
    assert "File too large. What was saved before is unchanged." in rest(start(script, str(path)))
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


leaves = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()


@given(st.recursive(leaves, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=20))
def test_readable_json_is_json(value):
    assert json.loads(atomic.readable_json(value)) == value


def test_readable_json_refuses_what_is_not_json():
    with pytest.raises(ValueError):
        atomic.readable_json([float("nan")])
