"""`heedful info`: what is installed, and what it allows."""

import platform
from typing import NamedTuple

import typer

from heedful import __version__


class Part(NamedTuple):
    """A package, the extra that brings it, and what it is for."""

    package: str
    extra: str | None
    purpose: str


PARTS = (
    Part("numpy", None, "arrays"),
    Part("sentencepiece", None, "subwords"),
    Part("sacrebleu", None, "BLEU, chrF, TER"),
    Part("safetensors", None, "weights without pickle"),
    Part("polars", "corpus", "checking and filtering corpora"),
    Part("torch", "train", "models, training, search"),
    Part("ctranslate2", "serve", "fast inference without PyTorch"),
    Part("onnxruntime", "onnx", "exports of any model, without PyTorch"),
    Part("onnx", "export", "writing them"),
    Part("transformers", "hugging-face", "exports for Hugging Face"),
    Part("fastapi", "serve", "the HTTP server"),
    Part("resvg_py", "figure", "maps of attention as PNG"),
    Part("ray", "scale", "work on many machines"),
)


def info(markdown: bool = typer.Option(False, "--markdown", help="A table to paste into a bug report.")) -> None:
    """Say what is installed, and the line that installs what is not.

    \b
      heedful info
      heedful info --markdown
    """  # noqa: D301  # a real backspace: the next paragraph keeps its lines
    rows = [
        ("heedful", __version__, ""),
        ("Python", platform.python_version(), f"{platform.system()} {platform.machine()}"),
        *((part.package, installed(part.package) or "missing", remark(part)) for part in PARTS),
    ]
    if markdown:
        typer.echo("| package | version | |\n| --- | --- | --- |")
    width = max(len(name) for name, _, _ in rows)
    for name, number, note in rows:
        typer.echo(f"| {name} | {number} | {note} |" if markdown else f"{name:{width}}  {number:14} {note}".rstrip())


def remark(part: Part) -> str:
    """What the package is for, or how to get it."""
    missing = installed(part.package) is None and part.extra is not None
    return f"{part.purpose}: pip install 'heedful[{part.extra}]'" if missing else part.purpose


def installed(package: str) -> str | None:
    """The version of a package, without importing it."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(package)
    except PackageNotFoundError:
        return None
