"""Links from every page to its other languages, and titles for the pages that are not translated."""

import re
import tomllib
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx

NAMES = {"en": "English", "pt": "Português", "ru": "Русский"}
IN_ENGLISH = {"pt": "em\N{NO-BREAK SPACE}inglês", "ru": "на\N{NO-BREAK SPACE}английском"}
LOCALE = Path(__file__).parents[1] / "locale"
TITLES: dict[str, dict[str, str]] = tomllib.loads((LOCALE / "titles.toml").read_text(encoding="utf-8"))


def add_links(app: Sphinx, page: str, _template: str, context: dict[str, Any], _tree: object) -> None:
    """English is at the root of the site, the other languages are in directories."""
    here = app.config.language
    up = "../" * page.count("/") + ("" if here == "en" else "../")
    context["languages"] = [
        (code, name, f"{up}{'' if code == 'en' else code + '/'}{page}.html", code == here)
        for code, name in NAMES.items()
    ]


def mark_untranslated(app: Sphinx, page: str, source: list[str]) -> None:
    source[0] = with_title(source[0], page, app.config.language)


def with_title(text: str, page: str, language: str) -> str:
    """`text` with a translated title that says "(in English)", if `page` has no catalog; code names stay."""
    if language not in IN_ENGLISH or (LOCALE / language / "LC_MESSAGES" / f"{page}.po").is_file():
        return text

    def title(match: re.Match[str]) -> str:
        if match[1] == page.rpartition("/")[2]:  # a package, in the reference
            return match[0]
        return f"# {TITLES[language].get(page, match[1])} ({IN_ENGLISH[language]})"

    return re.sub(r"^# (.+)$", title, text, count=1, flags=re.MULTILINE)


def setup(app: Sphinx) -> dict[str, Any]:
    app.connect("html-page-context", add_links)
    app.connect("source-read", mark_untranslated)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
