"""The site: `scripts/docs OUT` builds it in three languages, with every warning an error."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "_ext"))

project = "heedful"
author = "The heedful founders"
copyright = "The heedful founders, Apache-2.0"  # Sphinx's name for it
html_title = "heedful"

extensions = ["myst_parser", "mathml", "reference", "languages", "plots", "curves"]
myst_enable_extensions = ["dollarmath", "amsmath", "deflist"]
myst_heading_anchors = 3
exclude_patterns = ["_ext", "_build", "**.ipynb_checkpoints"]
suppress_warnings = ["ref.python"]  # two classes of one name in an annotation: a link to one of them
smartquotes = False  # quotation marks in docstrings are often those of code
locale_dirs = ["locale"]
gettext_compact = False  # one catalogue a page

toc_object_entries = False  # hundreds of names in every page's margin help nobody

html_theme = "furo"
html_static_path = ["_static"]
templates_path = ["_templates"]
html_sidebars = {
    "**": [
        "sidebar/brand.html",
        "sidebar/languages.html",
        "sidebar/search.html",
        "sidebar/scroll-start.html",
        "sidebar/navigation.html",
        "sidebar/scroll-end.html",
    ]
}
html_css_files = ["heedful.css"]
html_math_renderer = "mathml"
html_copy_source = False
html_show_sphinx = False
