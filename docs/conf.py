"""How the site is made: Sphinx, MyST, furo. `make docs` builds it; a test builds it with warnings as errors."""

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE / "extensions"), str(HERE.parent)]

import fopng  # noqa: E402

project = "fopng"
author = "The fopng authors"
copyright = "the fopng authors"
release = version = fopng.__version__

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "myst_nb",
    "mathml",
    "docstrings",
    "reference",
    "commands",
    "catalogue",
]
exclude_patterns = ["_build", "extensions"]

# Markdown
myst_enable_extensions = ["dollarmath", "colon_fence"]
myst_fence_as_directive = ["math"]
myst_heading_anchors = 3
myst_url_schemes = ["http", "https", "mailto"]

nb_execution_mode = "off"  # tests/test_tutorials.py executes the notebooks
nb_merge_streams = True

# Docstrings
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
# never imported for their documentation, there or not: what they pull in may not load everywhere
autodoc_mock_imports = ["avalanche", "lightning", "ray"]
autodoc_typehints_format = "short"
autodoc_inherit_docstrings = True
autodoc_use_type_comments = False  # there are none, and looking for them takes time
napoleon_use_rtype = False
python_maximum_signature_line_length = 90
python_use_unqualified_type_names = True
add_module_names = False
toc_object_entries_show_parents = "hide"

# Look
html_theme = "furo"
html_title = "fopng"
html_math_renderer = "mathml"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sphinx = False
pygments_style = "friendly"
pygments_dark_style = "monokai"
