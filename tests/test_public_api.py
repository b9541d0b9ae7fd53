"""The public names of `heedful`: what completion lists, what type checkers see, and what a misspelled argument says."""

import ast
import inspect
import os
import subprocess
import sys
from dataclasses import fields
from importlib import import_module
from pathlib import Path
from typing import get_type_hints

import pytest

import heedful
from heedful import samples
from heedful.errors import HeedfulError, UnexpectedArgument, suggest_arguments
from heedful.metrics.score import MetricOptions
from heedful.translation.translator import TranslationKeywords, TranslationOptions, Translator

ROOT = Path(__file__).parents[1]
INIT = ROOT / "src" / "heedful" / "__init__.py"
FUNCTIONS = [name for name in heedful.__all__ if name.islower() and name != "__version__"]


def test_dir_lists_the_public_names_and_no_others():
    assert dir(heedful) == sorted(heedful.__all__)
    code = "import sys, heedful; dir(heedful); print(sorted({'torch', 'polars', 'numpy'} & set(sys.modules)))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]", "dir() imports nothing"


@pytest.mark.parametrize("name", [name for name in heedful.__all__ if name != "__version__"])
def test_every_public_name_can_be_imported_and_is_documented(name):
    public = getattr(heedful, name)
    assert public is getattr(import_module(public.__module__), name)
    assert len(public.__doc__) > 20
    assert "Initialize self" not in public.__doc__


def test_type_checkers_and_getattr_find_the_same_objects():
    tree = ast.parse(INIT.read_text(encoding="utf-8"))
    (block,) = [node for node in tree.body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"]
    imported = {alias.name: node.module for node in block.body for alias in node.names}
    assert imported == heedful._LAZY_MODULES
    assert set(imported) <= set(heedful.__all__)


def test_a_misspelled_name_of_the_module_gets_a_suggestion():
    command = [sys.executable, "-c", "import heedful; heedful.evaluatee"]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "module 'heedful' has no attribute 'evaluatee'" in run.stderr
    assert "Did you mean: 'evaluate'?" in run.stderr
    with pytest.raises(ImportError, match="cannot import name 'evaluatee'"):
        from heedful import evaluatee  # noqa: F401


# ------------------------------------------------------------------------------------------------------- arguments


@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_misspelled_argument_gets_a_suggestion(name):
    function = getattr(heedful, name)
    for argument in inspect.signature(function).parameters:
        misspelled = argument[:-1] + "x" + argument[-1]
        with pytest.raises(UnexpectedArgument) as raised:
            function(**{misspelled: None})
        assert str(raised.value) == f"unexpected argument `{misspelled}`; did you mean `{argument}`?"


def test_an_unexpected_argument_is_an_error_of_both_kinds():
    assert issubclass(UnexpectedArgument, HeedfulError)
    assert issubclass(UnexpectedArgument, TypeError)

    @suggest_arguments
    def add(first: int, second: int = 1) -> int:
        """Return the sum."""
        return first + second

    assert add(1) == add(first=1, second=1) == 2
    assert add.__doc__ == "Return the sum."
    with pytest.raises(UnexpectedArgument, match="unexpected argument `zzz`; known: first, second"):
        add(1, zzz=2)
    with pytest.raises(TypeError, match="missing 1 required positional argument"):
        add()


def test_the_arguments_of_a_translator_are_the_fields_of_its_options():
    parameters = list(inspect.signature(Translator.__call__).parameters.values())
    assert [parameter.name for parameter in parameters[:2]] == ["self", "texts"]
    options = {parameter.name: (parameter.annotation, parameter.default) for parameter in parameters[2:]}
    assert all(parameter.kind is parameter.KEYWORD_ONLY for parameter in parameters[2:])
    assert options == {field.name: (field.type, field.default) for field in fields(TranslationOptions)}
    assert get_type_hints(TranslationKeywords) == get_type_hints(TranslationOptions)


def test_a_translator_suggests_its_options():
    translator = heedful.load("pt-en")
    with pytest.raises(UnexpectedArgument) as raised:
        translator("Bom dia.", beem=3)
    assert str(raised.value) == "unexpected argument `beem`; did you mean `beam`?"
    assert translator("Bom dia.", beam=2).text == "Good morning."


@pytest.mark.parametrize("name", ["evaluate", "compare"])
def test_the_options_of_metrics_are_arguments(name):
    parameters = inspect.signature(getattr(heedful, name)).parameters
    for field in fields(MetricOptions):
        assert parameters[field.name].default == field.default


# ------------------------------------------------------------------------------------------------------------ types

SCRATCH = """
import heedful
from pathlib import Path
translator = heedful.load("x")
reveal_type(translator)
reveal_type(translator("a"))
reveal_type(translator(["a"], beam=3))
reveal_type(heedful.evaluate(["a"], Path("b")))
reveal_type(heedful.compare({"a": ["a"], "b": translator}, "b"))
reveal_type(heedful.check("a", ["b"]))
reveal_type(heedful.train("a", out="b"))
translator("a", beem=3)
translator("a", beam="3")
heedful.load("x", treads=1)
heedful.evaluatee
"""
REVEALED = {
    5: "heedful.translation.translator.Translator",
    6: "heedful.types.Translation",
    7: "list[heedful.types.Translation]",
    8: "dict[str, heedful.metrics.score.Interval]",
    9: "heedful.metrics.compare.Comparison",
    10: "heedful.corpus.findings.Report",
    11: "pathlib.Path",
}
CONFIG = """
[mypy]
mypy_path = {source}
[mypy-torch.*,numpy.*,polars.*,pydantic.*,sacrebleu.*,typer.*,ctranslate2.*,transformers.*,sentencepiece.*,safetensors.*]
follow_imports = skip
ignore_missing_imports = True
"""


@pytest.mark.slow
def test_mypy_sees_the_types(tmp_path):
    (tmp_path / "scratch.py").write_text(SCRATCH)
    (tmp_path / "mypy.ini").write_text(CONFIG.format(source=ROOT / "src"))
    command = [sys.executable, "-m", "mypy", "--follow-imports=silent", "--config-file", "mypy.ini", "scratch.py"]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    run = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    lines = [line.removeprefix("scratch.py:") for line in run.stdout.splitlines() if line.startswith("scratch.py:")]
    for number, name in REVEALED.items():
        assert f'{number}: note: Revealed type is "{name}"' in lines, run.stdout
    errors = [line.split(": ", 2) for line in lines if ": error: " in line]
    assert {int(number) for number, _, _ in errors} == {12, 13, 14, 15}, run.stdout
    assert 'Unexpected keyword argument "beem"' in errors[0][2]
    assert 'Module has no attribute "evaluatee"' in errors[-1][2]


# ------------------------------------------------------------------------------------------------ lists, files, models


@pytest.fixture(scope="module")
def pairs() -> tuple[list[str], list[str]]:
    sources, references = samples.validation_lines("pt-en")
    return sources[:40], references[:40]


def write_lines(path: Path, lines: list[str]) -> Path:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


def test_lists_files_paths_and_models_get_the_same_scores(pairs, tmp_path):
    sources, references = pairs
    translator = heedful.load("pt-en", threads=1)
    lines = [translation.text for translation in translator(sources)]
    hypotheses = write_lines(tmp_path / "test.hypotheses", lines)
    reference, source = write_lines(tmp_path / "test.en", references), write_lines(tmp_path / "test.pt", sources)
    expected = heedful.evaluate(lines, references, samples=10)
    assert list(expected) == ["bleu", "chrf", "ter"]
    assert 0 < expected["bleu"].value < 100
    assert heedful.evaluate(str(hypotheses), reference, samples=10) == expected
    assert heedful.evaluate(hypotheses, str(reference), samples=10) == expected
    assert heedful.evaluate(translator, references, source=sources, samples=10) == expected
    assert heedful.evaluate("pt-en", reference, source=source, samples=10) == expected
    assert heedful.evaluate(lines, references, metrics="bleu", samples=10) == {"bleu": expected["bleu"]}


def test_several_references_are_lists_or_paths(pairs, tmp_path):
    _, references = pairs
    lower = [line.lower() for line in references]
    lists = heedful.evaluate(lower, [references, lower], metrics="exact", samples=10)
    assert lists["exact"].value == 100
    assert heedful.evaluate(lower, references, metrics="exact", lowercase=True, samples=10)["exact"].value == 100
    paths = [write_lines(tmp_path / "one.en", references), write_lines(tmp_path / "two.en", lower)]
    assert heedful.evaluate(lower, paths, metrics="exact", samples=10) == lists
    with pytest.raises(HeedfulError, match="the reference is a list of file names, but a list contains lines"):
        heedful.evaluate(lower, [str(path) for path in paths])


def test_systems_are_compared_by_name(pairs, tmp_path):
    _, references = pairs
    lower = [line.lower() for line in references]
    comparison = heedful.compare(
        {"old": lower, "new": write_lines(tmp_path / "new.en", references)}, references, metrics="chrf", samples=50
    )
    assert comparison.baseline == "old"
    assert comparison.compared[0].name == "new"
    assert comparison.compared[0].tally.losses == 0
    with pytest.raises(HeedfulError, match="systems must be a dict"):
        heedful.compare([lower, references], references)


@pytest.mark.parametrize(
    ("hypotheses", "references", "message"),
    [
        ("nowhere.en", ["a"], "there is no file nowhere.en"),
        ("A dog runs.", ["a"], "there is no file A dog runs.; pass text as a list of lines, not as a string"),
        (["a"], ["a", "b"], "translation has 1 lines and the reference has 2"),
        (["a"], [["a"], ["a", "b"]], "reference 1 has 1 lines and reference 2 has 2"),
        (["a", 3], ["a", "b"], "line 2 of translation is not a string but int: pass one string per line"),
        (["a\nb"], ["a"], "line 1 of translation has a line break: pass one string per line"),
        (["\ud800"], ["a"], "line 1 of translation has half a character (a surrogate): decode the text as UTF-8"),
        ([], ["a"], "translation is an empty list: pass one string per line"),
        (["a"], [], "the reference is an empty list"),
        (3, ["a"], "a system must be a file, a list of lines, a model directory or a translator"),
        ("pt-en", ["a"], "pt-en is a model: add the text to translate"),
    ],
)
def test_texts_that_cannot_be_scored(hypotheses, references, message):
    with pytest.raises(HeedfulError) as raised:
        heedful.evaluate(hypotheses, references)
    assert message in str(raised.value)


def test_a_corpus_is_checked_in_lists_and_files(pairs, tmp_path):
    sources, references = pairs
    sources = [*sources, sources[0]]
    references = [*references, references[0]]
    files = write_lines(tmp_path / "a.pt", sources), write_lines(tmp_path / "a.en", references)
    from_lists = heedful.check(sources, references, pair="pt-en", validation=(sources[:2], references[:2]))
    from_files = heedful.check(*files, validation=[sources[:2], references[:2]])
    kinds = [finding.kind for finding in from_lists.findings]
    assert {"overlap", "duplicate"} <= set(kinds)
    assert kinds == [finding.kind for finding in from_files.findings]
    assert {finding.file for finding in from_lists.findings} <= {"", "train.pt", "train.en"}
    assert from_lists.pairs == from_files.pairs
    with pytest.raises(HeedfulError, match="the source is a list of lines: pass the list of their translations too"):
        heedful.check(sources)
    with pytest.raises(HeedfulError, match="validation must be a list of one or two files"):
        heedful.check(sources, references, validation="valid.en")
    with pytest.raises(HeedfulError, match="line 2 of the target of train is not a string but NoneType"):
        heedful.check(["a", "b"], ["a", None])
    with pytest.raises(HeedfulError, match="there is no file"):
        heedful.check("nowhere.pt", "nowhere.en")


def test_training_accepts_lists_and_options(tmp_path, monkeypatch):
    requests = []
    monkeypatch.setattr("heedful.training.api.load_request", lambda settings: requests.append(settings) or stop())

    def stop():
        raise HeedfulError("stopped before training")

    for source, target in ((["a b", "c d"], ["b a", "d c"]), (tmp_path / "x.aa", str(tmp_path / "x.bb"))):
        with pytest.raises(HeedfulError, match="stopped before training"):
            heedful.train(source, target, out=tmp_path / "run", steps=7, pair="aa-bb", sets=["seed=5"])
    lists, files = requests
    assert (lists.source, lists.target, lists.seed, lists.train.steps) == ("aa", "bb", 5, 7)
    assert [Path(file).read_text() for file in lists.data.train[0].files] == ["a b\nc d\n", "b a\nd c\n"]
    assert {Path(file).parent for file in lists.data.train[0].files} == {tmp_path / "run" / "text"}
    assert files.data.train[0].files == ((tmp_path / "x.aa").as_posix(), (tmp_path / "x.bb").as_posix())
    monkeypatch.chdir(tmp_path)
    with pytest.raises(HeedfulError, match=r"there is no file x\.aa"):
        heedful.train("x.aa", "x.bb")
    for name in ("x.aa", "x.bb"):
        (tmp_path / name).write_text("a\n")
    with pytest.raises(HeedfulError, match="no run directory: add one"):
        heedful.train("x.aa", "x.bb")
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(HeedfulError, match="lists of lines are stored in the run directory: pass one"):
        heedful.train(["a"], ["b"])
    assert sorted(tmp_path.rglob("*")) == before
    with pytest.raises(HeedfulError, match="the settings name the files and all options: pass no other arguments"):
        heedful.train(files, steps=3)
