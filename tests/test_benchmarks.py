"""Every benchmark can be imported and run without arguments, has a short form, and is in the table of run.py."""

import argparse
import ast
import importlib.util
import itertools
import pkgutil
import re
import sys
from importlib import import_module
from pathlib import Path

import pytest

from heedful.config import ModelSettings, parse_settings

ROOT = Path(__file__).parents[1]
BENCHMARKS = ROOT / "benchmarks"
HELPERS = ("bare", "kneser_ney", "media_faults", "report", "run", "serving", "source_data")
SCRIPTS = sorted(path.stem for path in BENCHMARKS.glob("*.py") if path.stem not in HELPERS)
FOLDERS = [BENCHMARKS, *(ROOT / "tests" / part for part in ("", "exporters", "importers", "model", "nn"))]
TESTS = ("test_bundle", "test_ctc", "test_export", "test_imports", "test_latent")
OURS = ("heedful", "support", *TESTS, "peers", *SCRIPTS, *HELPERS)


class Parsed(Exception):
    """Raised in place of parsing, with the parser."""

    def __init__(self, parser):
        self.parser = parser


@pytest.fixture
def load(monkeypatch):
    """A function that imports a file of benchmarks/; skips where a package is missing that is not ours."""
    modules = set(sys.modules)
    for folder in FOLDERS:
        monkeypatch.syspath_prepend(str(folder))

    def load_script(name):
        spec = importlib.util.spec_from_file_location(f"benchmark_{name}", BENCHMARKS / f"{name}.py")
        module = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, spec.name, module)
        try:
            spec.loader.exec_module(module)
        except ModuleNotFoundError as error:
            if error.name.split(".")[0] in OURS:
                raise
            pytest.skip(f"{error.name} is not installed")
        return module

    yield load_script
    for name in set(sys.modules) - modules:  # `report` or `metrics` would hide other modules of that name
        if Path(getattr(sys.modules[name], "__file__", None) or "/").is_relative_to(BENCHMARKS):
            del sys.modules[name]


def parser_of(module, monkeypatch):
    """The parser that `main` makes."""

    def capture(parser, *_):
        raise Parsed(parser)

    with monkeypatch.context() as patched:
        patched.setattr(argparse.ArgumentParser, "parse_args", capture)
        with pytest.raises(Parsed) as parsed:
            module.main()
    return parsed.value.parser


def names_of(path):
    """The names that a script takes from us: imported anywhere in it, or written as text (a name to patch)."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module.split(".")[0] in OURS:
            yield from (f"{node.module}:{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (f"{alias.name}:" for alias in node.names if alias.name.split(".")[0] in OURS)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield from re.findall(r"(?<![\w/.])heedful(?:\.\w+){2,}(?![\w/.])", node.value)


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_runs_without_arguments_and_has_a_short_form(name, load, monkeypatch):
    parser = parser_of(load(name), monkeypatch)
    assert parser.parse_args([]).quick is False
    assert parser.parse_args(["--quick"]).quick is True
    assert "--quick" in parser.format_help()
    assert f"benchmarks/{name}.py" in (parser.description or ""), "the docstring shows no command"


@pytest.mark.parametrize("name", sorted(path.stem for path in BENCHMARKS.glob("*.py")))
def test_every_name_that_a_script_takes_from_us_exists(name, load):
    load("report")
    for dotted in sorted(set(names_of(BENCHMARKS / f"{name}.py"))):
        module, colon, attribute = dotted.partition(":")
        if not colon:
            pkgutil.resolve_name(dotted)
            continue
        try:
            imported = import_module(module)
        except ModuleNotFoundError as error:
            if error.name.split(".")[0] in OURS:
                raise
            pytest.skip(f"{error.name} is not installed")
        if attribute and not hasattr(imported, attribute):
            import_module(f"{module}.{attribute}")  # a module of a package


def test_run_has_every_script_in_its_table(load):
    run = load("run")
    names = [benchmark.name for benchmark in run.BENCHMARKS]
    assert len(names) == len(set(names))
    beside = {path.stem for path in BENCHMARKS.glob("*.py")} | {"peers"}
    assert {*names, *run.LEFT_OUT} == beside
    assert not set(names) & run.LEFT_OUT.keys()
    assert all(benchmark.claim for benchmark in run.BENCHMARKS)


@pytest.mark.parametrize(
    ("code", "text", "result", "figures"),
    [
        (0, "ok   fast: 1.000 (claimed >= 0.900)\n", "holds", ["ok   fast: 1.000 (claimed >= 0.900)"]),
        (1, "ok   a: 1\nMISS b: 0\nafter\n", "MISS", ["ok   a: 1", "MISS b: 0"]),
        (1, "Traceback\nValueError: x\n", "FAILED", ["exit code 1: ValueError: x"]),
        (0, "ok   a: 1\nSKIP b: no bf16\nSKIP b: no bf16\n", "holds", ["ok   a: 1", "SKIP b: no bf16"]),
        (0, "# date\nSKIP a page: no Chromium\n", "skipped", ["a page: no Chromium"]),
        (0, "only words\n", "holds", ["only words"]),
    ],
)
def test_run_reads_what_a_script_printed(code, text, result, figures, load):
    run = load("run")
    outcome = run.judge(run.BENCHMARKS[0], code, text, 1.0)
    assert (outcome.result, list(outcome.figures)) == (result, figures)


def test_run_ends_a_script_that_takes_too_long_and_skips_what_is_missing(load, monkeypatch, tmp_path):
    run = load("run")
    (tmp_path / "slow.py").write_text("import time\nprint('begun', flush=True)\ntime.sleep(60)\n")
    monkeypatch.setattr(run, "HERE", tmp_path)
    outcome = run.run(run.Benchmark("slow", "it ends"), False, tmp_path / "slow.txt", 2.0)
    assert outcome.result == "FAILED"
    assert "took longer than 2 s" in outcome.figures[0]
    assert outcome.seconds < 30
    lacking = run.Benchmark("slow", "it ends", corpora=("none",), packages=("none_such",), programs=("none-such",))
    outcome = run.run(lacking, False, tmp_path / "none.txt", 2.0)
    assert outcome.result == "skipped"
    assert outcome.figures == ["needs package none_such, program none-such, corpus none in HEEDFUL_DATA"]


def test_claims_that_need_bf16_are_skipped_without_it(load, monkeypatch, capsys):
    load("report")
    report = import_module("report")
    for facts, has_bf16 in (
        ({}, False),
        ({"flags": "avx2 avx512f"}, False),
        ({"flags": "avx512f amx_bf16"}, True),
        ({"Features": "asimd bf16"}, True),
    ):
        monkeypatch.setattr(report, "cpu_facts", lambda facts=facts: facts)
        assert (not report.bf16_problem()) == has_bf16
    assert report.skip("a claim", "no bf16") == 0
    assert capsys.readouterr().out == "SKIP a claim: no bf16\n"


@pytest.mark.parametrize("name", ["train_speed", "elastic", "kill9", "latent"])
def test_settings_that_scripts_make_are_valid(name, load, tmp_path):
    """They are trees of keys, which no import checks."""
    module = load(name)
    if name == "train_speed":
        for size in module.SIZES:
            assert module.settings_of(size, tmp_path).data.prepared_dir == str(tmp_path / "prepared")
        return
    if name == "latent":
        for quick, kind in itertools.product((False, True), module.DECODERS):
            options = module.Options(tmp_path, quick, module.LANGUAGES, "4m", "10m", "20m")
            assert parse_settings(module.settings_tree(options, tmp_path, kind, "4m")).model is not None
        for make_settings, _ in module.SPOKEN.values():
            ModelSettings.model_validate(make_settings(8))
        return
    for model in getattr(module, "MODELS", {"model": getattr(module, "MODEL", None)}).values():
        module.settings_of(tmp_path, tmp_path / "run", model=model, tokenizer=module.PIECES)
