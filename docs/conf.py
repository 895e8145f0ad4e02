"""Sphinx configuration: Markdown pages, the API from docstrings, and examples that are run to make their pages."""

import candid

project = "Candid"
author = "The Candid developers"
release = version = candid.__version__
extensions = [
    "myst_parser",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.mathjax",
    "sphinx_gallery.gen_gallery",
]
html_theme = "furo"
html_title = "Candid"
exclude_patterns = ["_build", "gallery/**/*.ipynb"]
myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 3
autosummary_generate = True
autodoc_typehints = "none"
numpydoc_show_class_members = False
sphinx_gallery_conf = {
    "examples_dirs": "../examples",
    "gallery_dirs": "gallery",
    "filename_pattern": r"plot_",
    "remove_config_comments": True,
    "show_memory": False,
}
# Callables in the gallery's configuration cannot be cached between builds, which is fine.
suppress_warnings = ["config.cache"]
