"""How Sphinx builds the documentation site: `make docs`."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import penstock

project = "Penstock"
author = "Penstock developers"
copyright = "2026, Penstock developers"
version = release = penstock.__version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
    "sphinx_design",
]
# A source of reference/errors.md, and not a page.
exclude_patterns = ["reference/error-notes.md"]
# Single backticks in docstrings.
default_role = "literal"

# Headings are targets of links, as on Git hosts.
myst_heading_anchors = 4
myst_enable_extensions = ["colon_fence", "deflist", "fieldlist"]

autodoc_default_options = {"members": True, "undoc-members": True}
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
python_maximum_signature_line_length = 88
autodoc_class_signature = "mixed"
autosummary_generate = False
napoleon_google_docstring = True
napoleon_numpy_docstring = False
python_use_unqualified_type_names = True
toc_object_entries_show_parents = "hide"

# No prompts or output in what a click copies.
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True

html_theme = "pydata_sphinx_theme"
html_title = f"Penstock {version}"
html_static_path = ["_static"]
html_css_files = ["penstock.css"]
html_js_files = ["from-disk.js"]
html_show_sourcelink = False
html_theme_options = {
    "logo": {"text": "Penstock"},
    "header_links_before_dropdown": 9,
    "navbar_align": "left",
    "navbar_persistent": ["search-button"],
    "navigation_with_keys": True,
    "show_nav_level": 2,
    "show_toc_level": 2,
    "secondary_sidebar_items": ["page-toc"],
    "article_header_start": ["breadcrumbs"],
    "footer_start": ["copyright"],
    "footer_end": [],
    "search_as_you_type": False,
}
html_sidebars = {"index": []}
