"""Where the command finds the reproduction, and what it says without one."""

import sys

import pytest

import fopng
from fopng.cli.reproduction import claims_of, reproduction


@pytest.fixture
def elsewhere(monkeypatch, tmp_path):
    """A package that runs from no clone, in a folder that is in none."""
    loaded = {name: sys.modules.pop(name) for name in [*sys.modules] if name.partition(".")[0] == "reproduction"}
    monkeypatch.setattr(fopng, "__file__", str(tmp_path / "clone" / "src" / "fopng" / "__init__.py"))
    monkeypatch.delenv("FOPNG_REPRODUCTION", raising=False)
    (tmp_path / "clone").mkdir()
    (tmp_path / "here" / "below").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "here" / "below")
    yield tmp_path
    for name in [name for name in sys.modules if name.partition(".")[0] == "reproduction"]:
        del sys.modules[name]
    sys.modules.update(loaded)


@pytest.mark.parametrize("command", ["paper", "claims"])
def test_without_one_the_commands_say_where_to_get_it(elsewhere, command_line, command):
    code, out, err = command_line(command, "--only", "split-mnist")
    assert (code, out) == (2, "")
    assert "Expected the folder reproduction of a clone of fopng, got none. Clone the repository" in err
    assert "FOPNG_REPRODUCTION" in err
    assert "Clone the repository" in command_line(command, "--help")[1]


def test_without_one_a_page_has_no_claims(elsewhere):
    assert claims_of([]) == []


@pytest.mark.parametrize("place", ["clone", "here/below", "here", "named"])
def test_one_is_found_beside_the_package_here_above_or_where_it_is_named(elsewhere, monkeypatch, place):
    folder = elsewhere / place / "reproduction"
    folder.parent.mkdir(exist_ok=True)
    for name in ("__init__", "options"):
        folder.mkdir(exist_ok=True)
        (folder / f"{name}.py").touch()
    (folder / "claims.py").write_text(f"PLACE = {place!r}\n")
    if place == "named":
        monkeypatch.setenv("FOPNG_REPRODUCTION", str(folder))
    assert place == reproduction("claims").PLACE
