"""Generate the reference from the code: a page for each package, and the help of every command.

Docstrings are Markdown. Modules are parsed, not imported, except for the command line.
"""

import ast
import re
from pathlib import Path
from typing import Any

from pygments.lexers.special import TextLexer
from sphinx.application import Sphinx

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "heedful"
Defined = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def write(app: Sphinx) -> None:
    """Write docs/reference/: one page per package, and one for the top-level modules."""
    out = Path(app.srcdir) / "reference"
    out.mkdir(exist_ok=True)
    packages: dict[str, list[str]] = {}
    for path in sorted(SOURCE.rglob("*.py")):
        parts = path.relative_to(SOURCE.parent).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        if parts[-1] != "__main__" and ".cli" not in name:
            package = parts[1] if len(parts) > 2 else "heedful"
            packages.setdefault(package, []).append(module(name, ast.parse(path.read_text(encoding="utf-8"))))
    pages = {f"{name}.md": "\n".join([f"# {name}\n", *some]) for name, some in packages.items()}
    toctree = "\n".join(["commands", *packages])
    pages["index.md"] = f"# Reference\n\nGenerated from the code.\n\n```{{toctree}}\n:maxdepth: 1\n\n{toctree}\n```\n"
    pages["commands.md"] = commands()
    for old in set(out.glob("*.md")) - {out / name for name in pages}:
        old.unlink()
    for name, text in pages.items():
        path = out / name
        if not path.exists() or path.read_text(encoding="utf-8") != text:  # Sphinx skips unchanged pages
            path.write_text(text, encoding="utf-8")


def module(name: str, tree: ast.Module) -> str:
    """Return the text for a module; empty if it has nothing public."""
    parts = [f"## {name}\n", f"````{{py:module}} {name}\n````\n", (ast.get_docstring(tree) or "") + "\n"]
    public = [one for one in tree.body if isinstance(one, Defined) and not one.name.startswith("_")]
    parts += [described(one) for one in public if ast.get_docstring(one)]
    return "\n".join(parts) if len(public) or len(ast.get_docstring(tree) or "") > 200 else ""


def described(one: Defined, inside: str = "") -> str:
    """Return the signature and docstring of a class or function."""
    fence = "`" * (5 if inside else 6)
    text = ast.get_docstring(one) or ""
    if isinstance(one, ast.ClassDef):
        members = [each for each in one.body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)]
        shown = [
            described(each, one.name) for each in members if not each.name.startswith("_") and ast.get_docstring(each)
        ]
        fields = [
            f"    {ast.unparse(each)}"
            for each in one.body
            if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name) and each.target.id[0] != "_"
        ]
        listed = "\n\n```python\n" + "\n".join(line.strip() for line in fields) + "\n```\n" if fields else ""
        bases = ", ".join(map(ast.unparse, one.bases))
        return (
            f"{fence}{{py:class}} {one.name}{f'({bases})' if bases else ''}\n\n{text}{listed}\n\n"
            + "\n".join(shown)
            + f"\n{fence}\n"
        )
    kind = (
        "property"
        if any("property" in ast.unparse(each) for each in one.decorator_list)
        else "method"
        if inside
        else "function"
    )
    arguments = ast.unparse(one.args)
    arguments = re.sub(r"^(self|cls)(, )?", "", arguments) if inside else arguments
    returns = f" -> {ast.unparse(one.returns)}" if one.returns else ""
    signature = one.name if kind == "property" else f"{one.name}({arguments}){returns}"
    return f"{fence}{{py:{kind}}} {signature}\n\n{text}\n{fence}\n"


def commands() -> str:
    """Return the help texts of all commands."""
    import typer.main

    from heedful.cli.app import app

    root = typer.main.get_command(app)
    parts = ["# Commands\n"]
    for name in sorted(root.commands):  # type: ignore[attr-defined]
        command = root.commands[name]  # type: ignore[attr-defined]
        text = re.sub(r"\s*\x08\s*\n", "\n\n", command.help or "")
        paragraphs = [
            "```sh\n" + "\n".join(line.strip() for line in part.split("\n")) + "\n```"
            if part.lstrip().startswith("heedful ")
            else part
            for part in re.split(r"\n\s*\n", text)
        ]
        parts.append(f"## heedful {name}\n\n" + "\n\n".join(paragraphs) + "\n\n| | |\n|---|---|")
        for each in command.params:
            if each.name in {"help", "install_completion", "show_completion"}:
                continue
            spelled = (
                ", ".join(f"`{one}`" for one in (*each.opts, *each.secondary_opts))
                if each.opts[0][0] == "-"
                else f"`{each.name.upper()}`"
            )
            parts.append(f"| {spelled} | {(each.help or '').replace('|', chr(92) + '|')} |")
        parts.append("")
    return "\n".join(parts)


def setup(app: Sphinx) -> dict[str, Any]:
    app.connect("builder-inited", write)
    app.add_lexer("layers", TextLexer)  # docs/architecture.md
    return {"parallel_read_safe": True, "parallel_write_safe": True}
