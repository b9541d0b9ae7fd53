"""Portuguese and Russian follow docs/glossary.toml, in the catalogs of the site and in the strings of the web pages."""

import json
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
LOCALE = ROOT / "docs" / "locale"
STRINGS = [
    ROOT / "src" / "heedful" / "inspection" / "viewer" / "glossary.json",
    ROOT / "src" / "heedful" / "serve" / "page" / "words.json",
    ROOT / "src" / "heedful" / "training" / "words.json",
]
GLOSSARY = tomllib.loads((ROOT / "docs" / "glossary.toml").read_text(encoding="utf-8"))
NOT_PROSE = re.compile(r"`[^`]*`|\$[^$]*\$|\]\([^)]*\)|https?://\S+|--[a-z-]+|\\[a-z]+\{.*")


def entries(language: str) -> Iterator[tuple[str, str, str]]:
    """Where, English and translation of every string, without code, formulas and link targets."""
    for path in sorted((LOCALE / language).rglob("*.po")):
        for pair in re.findall(r'^msgid "(.+)"\nmsgstr "(.+)"$', path.read_text(encoding="utf-8"), re.MULTILINE):
            yield path.stem, *(NOT_PROSE.sub(" ", text) for text in pair)
    for path in STRINGS:
        strings = json.loads(path.read_text(encoding="utf-8"))
        for key, text in strings["en"].items():
            yield f"{path.name} {key}", *(NOT_PROSE.sub(" ", each) for each in (text, strings[language][key]))


def violations(glossary: dict[str, str], english: str, translation: str) -> list[str]:
    """Terms of `english` without their translation; long terms first, so that "beam search" is not "beam" too."""
    missing = []
    for term in sorted(glossary, key=len, reverse=True):
        forms = "|".join(re.escape(form) for form in term.split(", "))
        english, count = re.subn(rf"\b(?:{forms})(?:s|es)?\b", " ", english, flags=re.IGNORECASE)
        stems = "|".join(re.escape(form.partition("|")[0]) for form in glossary[term].split(", "))
        if count and not re.search(rf"\b(?:{stems})", translation, re.IGNORECASE):
            missing.append(term)
    return missing


def test_the_languages_have_the_same_terms():
    assert GLOSSARY["pt"].keys() == GLOSSARY["ru"].keys()


@pytest.mark.parametrize("language", GLOSSARY)
def test_one_term_has_one_translation(language):
    wrong = [
        f"{where}: {', '.join(terms)}: {translation}"
        for where, english, translation in entries(language)
        if (terms := violations(GLOSSARY[language], english, translation))
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("language", GLOSSARY)
def test_every_term_occurs(language):
    text = "\n".join(english for _, english, _ in entries(language))
    for term in GLOSSARY[language]:
        assert violations({term: "?"}, text, ""), f"{term} occurs nowhere"


@pytest.mark.parametrize("language", GLOSSARY)
def test_numbers_have_decimal_commas(language):
    wrong = [
        f"{where}: {text}"
        for where, _, text in entries(language)
        if re.search(r"\d\.\d", re.sub(r"CC BY(-SA)? \d\.\d", "", text))
    ]
    assert not wrong, "\n".join(wrong)


def test_a_wrong_translation_is_found():
    glossary = {"beam": "feixe", "beam search": "busca em feixe", "head": "cabeça"}
    assert violations(glossary, "Beam search, two heads", "Busca em feixe, duas cabeças") == []
    assert violations(glossary, "Beam search, two heads", "Pesquisa em feixe, duas pontas") == ["beam search", "head"]
    assert violations(glossary, "Overheads", "Custos") == []


@pytest.mark.parametrize("language", GLOSSARY)
def test_every_entry_of_the_contents_is_translated_or_marked(language, monkeypatch):
    pytest.importorskip("sphinx", reason="sphinx is not installed: pip install 'heedful[docs]'")
    monkeypatch.syspath_prepend(str(ROOT / "docs" / "_ext"))
    import languages

    docs = ROOT / "docs"
    made = {"reference", "_build", ".ipynb_checkpoints"}  # by Sphinx and Jupyter
    paths = [path.relative_to(docs).with_suffix("") for kind in ("md", "ipynb") for path in docs.rglob(f"*.{kind}")]
    pages = {path.as_posix() for path in paths if made.isdisjoint(path.parts)}
    translated = {page for page in pages if (LOCALE / language / "LC_MESSAGES" / f"{page}.po").is_file()}
    titles = languages.TITLES[language]
    assert titles.keys() - {"reference/index", "reference/commands"} == pages - translated
    for page in translated:
        text = (docs / f"{page}.md").read_text(encoding="utf-8")
        assert languages.with_title(text, page, language) == text
    marked = languages.with_title("# Train\n\n# Train\n", "train", language)
    assert marked == f"# {titles['train']} ({languages.IN_ENGLISH[language]})\n\n# Train\n"
    assert languages.with_title("# nn\n", "reference/nn", language) == "# nn\n"


def test_the_page_of_the_glossary_has_every_term_once(monkeypatch):
    pytest.importorskip("sphinx", reason="sphinx is not installed: pip install 'heedful[docs]'")
    monkeypatch.syspath_prepend(str(ROOT / "docs" / "_ext"))
    import terms

    page = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
    lines = page.split("```{terms}\n")[1].split("\n```")[0].splitlines()
    pages = terms.read_pages(lines)
    assert len(pages) == len(GLOSSARY["pt"]) == sum(line.count(", ") + 1 for line in lines)
    assert all((ROOT / "docs" / f"{page}.md").is_file() for page in pages.values())
    with pytest.raises(Exception, match="not by both: query"):
        terms.read_pages(line.replace("query, ", "") for line in lines)
    assert terms.first_form("atenç|ão, atent|o") == "atenção"
