"""Names are unique and say what they hold, and no two modules import each other."""

import ast
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src"

# Class names that may be defined in several modules -> why.
SAME_CONCEPT: dict[str, str] = {}
VAGUE_NAMES = {"found", "one", "told", "made", "given", "some"}
MAX_VAGUE_NAMES = 60
# Groups of modules that may import each other inside functions or under TYPE_CHECKING -> why.
ALLOWED_CYCLES: dict[frozenset[str], str] = {}


class Import(NamedTuple):
    """An import of one module of heedful by another."""

    importer: str
    imported: str
    line: int
    at_module_level: bool  # executed when the importer is imported

    def __str__(self) -> str:
        where = "" if self.at_module_level else " (in a function or under TYPE_CHECKING)"
        return f"{self.importer}:{self.line} imports {self.imported}{where}"


@cache
def syntax_trees() -> dict[str, ast.Module]:
    """The syntax tree of every module by its dotted name."""
    return parse_package(SOURCE)


def parse_package(source: Path) -> dict[str, ast.Module]:
    trees = {}
    for path in sorted(source.rglob("*.py")):
        name = ".".join(path.relative_to(source).with_suffix("").parts).removesuffix(".__init__")
        trees[name] = ast.parse(path.read_text(encoding="utf-8"))
    return trees


# ---------------------------------------------------------------------------------------------------- class names


def test_class_names_are_defined_once():
    modules = defaultdict(set)
    for name, tree in syntax_trees().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                modules[node.name].add(name)
    repeated = {name: sorted(places) for name, places in modules.items() if len(places) > 1}
    assert {name: places for name, places in repeated.items() if name not in SAME_CONCEPT} == {}
    assert set(SAME_CONCEPT) <= set(repeated), "remove the entries of SAME_CONCEPT that are not needed any more"


# ---------------------------------------------------------------------------------------------------- vague names


def bound_names(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """(name, line) of everything that is assigned, looped over, captured by a pattern or a parameter."""
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name, ctx=ast.Store()) | ast.arg(arg=name):
                yield name, node.lineno
            case ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
                yield name, node.lineno


def test_locals_and_parameters_say_what_they_hold():
    places = [
        f"{module}:{line}: {name}"
        for module, tree in syntax_trees().items()
        for name, line in bound_names(tree)
        if name in VAGUE_NAMES
    ]
    assert len(places) <= MAX_VAGUE_NAMES, "\n".join([f"{len(places)} vague names:", *places])


def test_every_way_to_bind_a_name_is_counted():
    code = "def f(a, *b, c=1, **d):\n with x as e, y as (f, g): h = [i for i in (j := k)]\n for l in m: n: int = 1"
    names = {name for name, _ in bound_names(ast.parse(code))}
    assert names == set("abcdefghijln")
    assert {name for name, _ in bound_names(ast.parse("match x:\n case [a, *b] | A(b=c): pass"))} == set("abc")


# ---------------------------------------------------------------------------------------------------- import cycles


def imports_of(trees: dict[str, ast.Module]) -> list[Import]:
    """All imports between modules; `from package import module` counts as an import of the module."""

    def walk(node: ast.AST, importer: str, at_module_level: bool) -> Iterator[Import]:
        for child in ast.iter_child_nodes(node):
            names: list[str] = []
            if isinstance(child, ast.Import):
                names = [alias.name for alias in child.names]
            elif isinstance(child, ast.ImportFrom):
                full_names = [f"{child.module}.{alias.name}" for alias in child.names]
                names = [name if name in trees else str(child.module) for name in full_names]
            for name in dict.fromkeys(names):
                if name in trees and name != importer:
                    yield Import(importer, name, child.lineno, at_module_level)
            is_deferred = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) or (
                isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test)
            )
            yield from walk(child, importer, at_module_level and not is_deferred)

    return [found for name, tree in trees.items() for found in walk(tree, name, True)]


def find_cycles(imports: list[Import]) -> list[frozenset[str]]:
    """Groups of modules in which each one imports every other, directly or through others (Tarjan)."""
    graph = defaultdict(set)
    for each in imports:
        graph[each.importer].add(each.imported)
    index: dict[str, int] = {}
    lowest: dict[str, int] = {}
    stack: list[str] = []
    cycles = []

    def visit(module: str) -> None:
        index[module] = lowest[module] = len(index)
        stack.append(module)
        for imported in sorted(graph[module]):
            if imported not in index:
                visit(imported)
            if imported in stack:
                lowest[module] = min(lowest[module], lowest[imported])
        if lowest[module] == index[module]:
            members = stack[stack.index(module) :]
            del stack[stack.index(module) :]
            if len(members) > 1:
                cycles.append(frozenset(members))

    for module in sorted({each.importer for each in imports}):
        if module not in index:
            visit(module)
    return cycles


def describe_cycles(cycles: list[frozenset[str]], imports: list[Import]) -> str:
    groups = ([str(each) for each in imports if {each.importer, each.imported} <= cycle] for cycle in cycles)
    return "\n\n".join("\n".join(group) for group in groups)


def test_no_modules_import_each_other_when_they_are_loaded():
    imports = [each for each in imports_of(syntax_trees()) if each.at_module_level]
    cycles = find_cycles(imports)
    assert not cycles, describe_cycles(cycles, imports)


def test_no_modules_import_each_other_in_functions_or_for_types():
    # `heedful` itself imports the public functions only on first use, and repeats them for type checkers.
    imports = [each for each in imports_of(syntax_trees()) if each.at_module_level or each.importer != "heedful"]
    cycles = find_cycles(imports)
    unexpected = [cycle for cycle in cycles if cycle not in ALLOWED_CYCLES]
    assert not unexpected, describe_cycles(unexpected, imports)
    assert set(ALLOWED_CYCLES) <= set(cycles), "remove the entries of ALLOWED_CYCLES that are not needed any more"


def test_the_cycle_test_can_fail(tmp_path):
    files = {
        "__init__.py": "",
        "a.py": "from heedful import b",
        "b.py": "def f():\n    from heedful.c import x",
        "c.py": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import heedful.a",
        "d.py": "import heedful.a",
    }
    (tmp_path / "heedful").mkdir()
    for name, text in files.items():
        (tmp_path / "heedful" / name).write_text(text)
    imports = imports_of(parse_package(tmp_path))
    assert find_cycles(imports) == [frozenset({"heedful.a", "heedful.b", "heedful.c"})]
    assert find_cycles([each for each in imports if each.at_module_level]) == []
    (tmp_path / "heedful" / "b.py").write_text("class A:\n    import heedful.a")
    imports = imports_of(parse_package(tmp_path))
    assert find_cycles([each for each in imports if each.at_module_level]) == [frozenset({"heedful.a", "heedful.b"})]


# ------------------------------------------------------------------------------------------- scripts/draw_names


def draw_names(*options: str) -> list[str]:
    command = [sys.executable, ROOT / "scripts" / "draw_names", *options]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()


def test_names_are_drawn_by_seed_without_what_would_give_them_away():
    names = draw_names("--seed", "7", "--count", "40")
    assert len(set(names)) == 40
    assert draw_names("--seed", "7", "--count", "40") == names
    assert draw_names("--seed", "8", "--count", "40") != names
    every_name = draw_names("--count", "1000000")
    assert len(every_name) > 1000
    assert all(line.startswith(("heedful.", "class heedful.")) for line in every_name)
    assert not [line for line in every_name if "__init__(" in line or ".forward(" in line or '"""' in line]
