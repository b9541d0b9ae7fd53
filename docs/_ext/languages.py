"""Links from every page to itself in the other languages."""

from typing import Any

from sphinx.application import Sphinx

NAMES = {"en": "English", "pt": "Português", "ru": "Русский"}


def add(app: Sphinx, page: str, _template: str, context: dict[str, Any], _tree: object) -> None:
    """English stands at the root of the site, the others in folders of their own."""
    here = app.config.language
    up = "../" * page.count("/") + ("" if here == "en" else "../")
    context["languages"] = [
        (code, name, f"{up}{'' if code == 'en' else code + '/'}{page}.html", code == here)
        for code, name in NAMES.items()
    ]


def setup(app: Sphinx) -> dict[str, Any]:
    """Tell Sphinx."""
    app.connect("html-page-context", add)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
