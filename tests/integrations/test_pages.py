"""The code in the pages about other libraries runs."""

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).parent.parent.parent / "docs"
NEEDED = {"avalanche": "avalanche", "lightning": "lightning", "hugging-face": "transformers", "lora": "peft"}


@pytest.mark.parametrize("page", NEEDED)
def test_the_code_of_a_page_runs(page, tmp_path):
    if importlib.util.find_spec(NEEDED[page]) is None:
        pytest.skip(f"needs {NEEDED[page]}")
    blocks = re.findall(r"```python\n(.*?)```", (DOCS / "guides" / f"{page}.md").read_text(), re.DOTALL)
    assert blocks
    code = "\n".join(["import torchvision_ops", "torchvision_ops.define_missing()", *blocks])
    tests = Path(__file__).parent.parent
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(tests)!r})\n{code}"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
