"""Update a catalog of translations: add new sentences without a translation, remove old ones, keep the rest.

python docs/_ext/catalogue.py guide/ship.pot docs/locale/pt/LC_MESSAGES/guide/ship.po pt
"""

import sys
from pathlib import Path

from babel.messages.catalog import Catalog
from babel.messages.pofile import read_po, write_po


def updated(template: Path, path: Path, language: str) -> Catalog:
    """Return the catalog at `path` with the sentences of `template`."""
    with template.open("rb") as stream:
        wanted = read_po(stream)
    found: dict[str, str] = {}
    if path.is_file():
        with path.open("rb") as stream:
            found = {str(one.id): str(one.string) for one in read_po(stream) if one.id}
    new = Catalog(locale=language, project="heedful", charset="utf-8", fuzzy=False)
    for one in wanted:
        if one.id:
            new.add(one.id, found.get(str(one.id), ""))
    return new


def main(template: str, path: str, language: str) -> None:
    catalogue = updated(Path(template), Path(path), language)
    with Path(path).open("wb") as stream:
        write_po(stream, catalogue, width=0, omit_header=True, no_location=True, sort_output=False)


if __name__ == "__main__":
    main(*sys.argv[1:])
