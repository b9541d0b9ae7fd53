"""The site: `scripts/docs OUT` builds it in three languages, with every warning an error."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "_ext"))

project = "heedful"
author = "The heedful founders"
copyright = "The heedful founders, Apache-2.0"  # the name is Sphinx's
html_title = "heedful"

extensions = ["myst_nb", "mathml", "reference", "languages", "plots", "curves", "formulas", "terms"]
extensions += ["live", "live_lecture", "notebooks"]
myst_enable_extensions = ["dollarmath", "amsmath", "colon_fence", "deflist"]
myst_heading_anchors = 3
nb_execution_mode = "off"  # the notebooks include their outputs
exclude_patterns = ["_ext", "_build", "**.ipynb_checkpoints"]
suppress_warnings = ["ref.python"]  # an annotation whose name has several targets links to one of them
smartquotes = False  # quotation marks in docstrings often belong to code
locale_dirs = ["locale"]
figure_language_filename = "{root}.{language}{ext}"  # figures/NAME.pt.svg is beside figures/NAME.svg
gettext_compact = False  # one catalog per page

toc_object_entries = False  # too many names for the margin of a page

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
html_js_files = ["live.js"]
html_logo = "_static/logo.svg"
html_favicon = "_static/logo.svg"
html_math_renderer = "mathml"
html_copy_source = False
html_show_sphinx = False
