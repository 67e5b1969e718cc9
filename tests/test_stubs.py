"""The stubs say what the classes say: `python tools/stubs.py` writes them anew."""

from tools.stubs import stubs


def test_stubs_are_up_to_date():
    for path, text in stubs().items():
        assert path.read_text(encoding="utf-8") == text, f"Expected {path.name} as tools/stubs.py writes it. Run it."
