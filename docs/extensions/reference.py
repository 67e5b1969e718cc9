"""The API reference: a page for what `import fopng` gives, and one for each part of the package, from the docstrings."""

import pkgutil
from collections.abc import Iterator
from importlib import import_module
from inspect import getdoc, isclass, isfunction
from pathlib import Path

from sphinx.application import Sphinx

import fopng

LEFT_OUT = ("cli", "kernels", "__main__")
"""Commands have a page of their own; kernels are Triton's, each with a documented twin in plain torch."""

INTRODUCTION = """
API reference
=============

Everything public, from its docstring. :doc:`fopng` is what ``import fopng`` gives: the optimizers and what they take. The other
pages are the parts of the package, for those who build on them.

.. toctree::
   :hidden:

   {pages}

.. list-table::
   :header-rows: 1
   :widths: 25 75

   * - part
     - what it is
"""


def setup(app: Sphinx) -> dict[str, bool]:
    """Write the pages before any is read."""
    app.connect("builder-inited", lambda app: write_pages(Path(app.srcdir) / "api"))
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def write_pages(folder: Path) -> None:
    """Write a page a part, and the list of them; a page that is as it was is left alone."""
    pages = {"fopng": _top(), **{name: _part(members) for name, members in parts().items()}}
    pages["index"] = INTRODUCTION.format(pages="\n   ".join(pages)).lstrip() + "\n".join(
        f"   * - :doc:`{name}`\n     - {_summary(name)}" for name in pages
    )
    folder.mkdir(exist_ok=True)
    for stale in {path.stem for path in folder.glob("*.rst")} - set(pages):
        (folder / f"{stale}.rst").unlink()
    for name, text in pages.items():
        write(folder / f"{name}.rst", text + "\n")


def write(path: Path, text: str) -> None:
    """Write a file, unless it says that already: what has not changed need not be built again."""
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        path.write_text(text, encoding="utf-8")


def parts() -> dict[str, list[str]]:
    """The modules of each part of the package: a module, or a folder with what is in it."""
    found: dict[str, list[str]] = {}
    for name in modules():
        found.setdefault(".".join(name.split(".")[:2]), []).append(name)
    return found


def modules() -> Iterator[str]:
    """Every public module that the reference holds."""
    for info in pkgutil.walk_packages(fopng.__path__, "fopng."):
        words = info.name.split(".")
        if words[1] not in LEFT_OUT and not words[-1].startswith("_"):
            yield info.name


def _top() -> str:
    names = sorted(fopng.__all__, key=str.lower)
    classes = [name for name in names if isclass(getattr(fopng, name))]
    blocks = [f".. autoclass:: {_home(name)}\n   :members:\n   :show-inheritance:" for name in classes]
    blocks += [f".. autofunction:: {_home(name)}" for name in names if isfunction(getattr(fopng, name))]
    return _heading("fopng") + "\n\n".join([(getdoc(fopng) or ""), *blocks])


def _part(names: list[str]) -> str:
    blocks = [_heading(names[0])]
    for name in names:
        elsewhere = sorted(found for top in fopng.__all__ if (found := _home(top)).rpartition(".")[0] == name)
        if name != names[0]:
            blocks.append(_heading(name, "-"))
        blocks.append(f".. automodule:: {name}\n   :members:\n   :ignore-module-all:\n   :show-inheritance:")
        if elsewhere:
            short = [found.rpartition(".")[2] for found in elsewhere]
            blocks[-1] += f"\n   :exclude-members: {', '.join(short)}"
            blocks.append(
                "On the page of :doc:`fopng`: " + ", ".join(f":py:obj:`{found}`" for found in elsewhere) + "."
            )
    return "\n\n".join(blocks)


def _home(name: str) -> str:
    return f"{fopng.HOMES[name]}.{name}"


def _heading(title: str, line: str = "=") -> str:
    return f"{title}\n{line * len(title)}\n\n"


def _summary(name: str) -> str:
    return (getdoc(import_module(name)) or "").partition("\n")[0].replace("`", "``")
