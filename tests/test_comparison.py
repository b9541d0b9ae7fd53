"""The table that compares the lectures with other courses: heedful's column says what is there."""

import re
from pathlib import Path

DOCS = Path(__file__).parents[1] / "docs"
PAGES = {path.stem: path.read_text(encoding="utf-8") for path in sorted((DOCS / "lectures").glob("*.md"))}


def count_exercises(page: str) -> int:
    section = page.partition("\n## Exercises\n")[2].partition("\n:::")[0]
    return len(re.findall(r"^\d+\. ", section, re.M))


def test_the_column_of_heedful_is_what_is_there():
    rows = (line.split(" | ") for line in PAGES["index"].splitlines() if line.startswith("| "))
    ours = {cells[0].strip("| "): cells[1] for cells in rows if len(cells) == 6}
    text = "\n".join(PAGES.values())
    counted = {
        "counted": len(PAGES.keys() - {"index", "ten-slides"}),
        "figures": text.count("\n```{figure} "),
        "interaction": text.count("\n```{live} "),
        "exercises": sum(count_exercises(page) for page in PAGES.values()),
        "solutions": text.count(":::{admonition} Solution of exercise "),
        "code on the pages": text.count("\n```python\n"),
        "notebooks": len(list((DOCS / "notebooks").glob("*.ipynb"))),
        "errata": len(re.findall(r"^\| \d+ \|", PAGES["index"], re.M)),
    }
    assert {row: int(re.match(r"\d+", ours[row])[0]) for row in counted} == counted
