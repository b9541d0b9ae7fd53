"""The architecture as a test: who may import whom, what works without torch, what is public."""

import ast
import inspect
import pkgutil
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import heedful
from heedful.errors import HeedfulError, MissingExtra, require

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "heedful"
NEEDS_POLARS = tuple(
    f"corpus.{part}"
    for part in (
        "check",
        "completeness",
        "examination",
        "filters",
        "findings",
        "languages",
        "repair",
        "parallel",
        "rules",
    )
)
NEEDS_TORCH = (
    "performance",
    "nn",
    "model",
    "search.attribute_cache",
    "search.beam",
    "search.ctc",
    "search.decoding",
    "search.filters",
    "search.generation",
    "search.maps",
    "training",
    "build",
    "exporters.onnx",
    "data.batch",
    "embeddings.word2vec",
    "engines.hugging_face",
    "engines.torch",
    "inspection.evidence",
    "inspection.record",
    "inspection.hugging_face",
    "lab.experiments",
    "lab.tasks",
)


def layers() -> dict[str, int]:
    """Part -> height, from the list in docs/architecture.md."""
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    lines = re.search(r"```layers\n(.*?)```", text, re.S)[1].strip().splitlines()
    return {part.strip(): len(lines) - row for row, line in enumerate(lines) for part in line.split("|")}


def imports(path: Path) -> list[tuple[int, str]]:
    """(line, part of heedful) for every import in a file, also those inside functions."""
    found = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: relative import"
            names = [node.module or ""]
            if node.module == "heedful":  # from heedful import config
                names = [f"heedful.{alias.name}" for alias in node.names if alias.name in layers()]
        else:
            continue
        found += [(node.lineno, name.split(".")[1]) for name in names if name.startswith("heedful.")]
    return found


def upward_imports(package: Path, heights: dict[str, int]) -> list[str]:
    wrong = []
    for path in sorted(package.rglob("*.py")):
        own = path.relative_to(package).with_suffix("").parts[0]
        if own.startswith("__"):
            continue
        for line, other in imports(path):
            if other != own and heights[other] >= heights[own]:
                wrong.append(f"{path.relative_to(package)}:{line}: {own} must not import {other}")
    return wrong


def test_imports_point_down():
    heights = layers()
    parts = {
        path.stem for path in PACKAGE.iterdir() if not path.name.startswith(("_", ".")) and path.suffix != ".typed"
    }
    assert parts == set(heights), "the list has every part of the package, and no other"
    assert upward_imports(PACKAGE, heights) == []


def test_the_layer_test_can_fail(tmp_path):
    for part, text in (("nn", "from heedful.search import Beam"), ("search", "import heedful.metrics"), ("model", "")):
        (tmp_path / part).mkdir()
        (tmp_path / part / "one.py").write_text(text)
    assert [line.split(": ")[1] for line in upward_imports(tmp_path, layers())] == [
        "nn must not import search",
        "search must not import metrics",
    ]


def modules() -> list[str]:
    return [found.name for found in pkgutil.walk_packages([str(PACKAGE)], "heedful.")]


def free(name: str, needy: tuple[str, ...]) -> bool:
    inner = name.removeprefix("heedful.")
    return not any(inner == part or inner.startswith(part + ".") for part in needy)


BLOCKED = """
import sys
class Block:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {blocked!r}:
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Block())
import importlib
for name in {names!r}:
    importlib.import_module(name)
"""


@pytest.mark.parametrize(
    ("blocked", "needy"), [("torch", NEEDS_TORCH), ("polars", NEEDS_TORCH + NEEDS_POLARS), ("ray", NEEDS_TORCH)]
)
def test_what_should_not_need_a_heavy_package_imports_without_it(blocked, needy):
    names = [name for name in modules() if free(name, needy)]
    assert "heedful.cli.app" in names
    code = BLOCKED.format(blocked=(blocked,), names=names)
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr


@pytest.mark.parametrize("part", ["nn.contract", "model.seq2seq", "search.beam", "data.batch"])
def test_what_needs_torch_says_how_to_install_it(part, monkeypatch):
    monkeypatch.setattr("heedful.errors.find_spec", lambda name: None if name == "torch" else object())
    root = part.split(".")[0] if part != "data.batch" else part
    for name in [name for name in sys.modules if name.startswith(f"heedful.{root}")]:
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(MissingExtra, match=r"needs torch.*pip install 'heedful\[train\]'"):
        import_module(f"heedful.{part}")


def test_a_lazy_name_that_needs_torch_says_how_to_install_it(monkeypatch):
    monkeypatch.setattr("heedful.errors.find_spec", lambda name: None if name == "torch" else object())
    with pytest.raises(MissingExtra, match=r"needs torch.*pip install 'heedful\[train\]'"):
        from heedful.search import Beam  # noqa: F401
    with pytest.raises(ImportError, match="cannot import name 'Beem'"):
        from heedful.search import Beem  # noqa: F401


def test_require_is_silent_when_the_package_is_there():
    require("numpy", extra="train", whose="a test")
    assert issubclass(MissingExtra, HeedfulError)


def test_the_public_names():
    assert heedful.__all__ == [
        "HeedfulError",
        "Hypothesis",
        "SamplingOptions",
        "Translation",
        "Translator",
        "__version__",
        "calibrate",
        "check",
        "compare",
        "evaluate",
        "export",
        "import_model",
        "init",
        "inspect",
        "load",
        "prepare",
        "train",
    ]
    assert all(hasattr(heedful, name) for name in heedful.__all__)
    assert all(callable(getattr(heedful, name)) for name in heedful.__all__[6:])


@pytest.mark.parametrize("name", modules())
def test_everything_public_is_documented_and_typed(name):
    module = import_module(name)
    assert module.__doc__, f"{name} has no docstring"
    for label, thing in vars(module).items():
        if label.startswith("_") or getattr(thing, "__module__", None) != name:
            continue
        if inspect.isclass(thing) or label in heedful.__all__ or name == f"heedful.cli.{label}":
            assert thing.__doc__, f"{name}.{label} has no docstring"
        if inspect.isfunction(thing):
            signature = inspect.signature(thing)
            assert signature.return_annotation is not signature.empty, f"{name}.{label} has no return type"
            for parameter in signature.parameters.values():
                assert parameter.annotation is not parameter.empty, f"{name}.{label}({parameter.name}) has no type"


def test_no_line_is_excluded_from_coverage_without_a_reason():
    for path in PACKAGE.rglob("*.py"):
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            if "pragma: no cover" in line:
                assert re.search(r"pragma: no cover\s+#\s*\S+", line), f"{path}:{number}: say why"
