"""What the page of a notebook has and the file has not: a link to the file, a translated title, texts for pictures."""

import json
import re
from pathlib import Path
from typing import Any

from languages import with_title
from sphinx.application import Sphinx


def complete(app: Sphinx, page: str, source: list[str]) -> None:
    """Add the link below the introduction, and to each code cell the heading above it, which describes its pictures."""
    path = Path(app.env.doc2path(page))
    if path.suffix != ".ipynb":
        return
    notebook = json.loads(source[0])
    heading = ""
    for cell in notebook["cells"]:
        text = "".join(cell["source"])
        if cell["cell_type"] == "code":
            cell["metadata"] = {"mystnb": {"image": {"alt": f"Drawn by the cell above: {heading}"}}}
        else:
            heading = [heading, *re.findall(r"^#+ (.+)$", text, re.MULTILINE)][-1]
    first = notebook["cells"][0]
    link = f"{{download}}`Download this notebook <{path.name}>`"
    first["source"] = f"{with_title(''.join(first['source']), page, app.config.language)}\n\n{link}"
    source[0] = json.dumps(notebook)


def setup(app: Sphinx) -> dict[str, Any]:
    app.connect("source-read", complete)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
