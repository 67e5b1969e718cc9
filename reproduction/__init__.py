"""The reproduction of the paper: its experiments, its claims, the committed results, and the pages that are made from them."""

from pathlib import Path

FOLDER = Path(__file__).parent
RESULTS = FOLDER / "results"
