"""`heedful info`: installed packages and their purpose."""

import platform
from typing import NamedTuple

import typer

from heedful import __version__


class Package(NamedTuple):
    """A package, the extra that installs it, and its purpose."""

    name: str
    extra: str | None
    purpose: str


PACKAGES = (
    Package("numpy", None, "arrays"),
    Package("sentencepiece", None, "subwords"),
    Package("sacrebleu", None, "BLEU, chrF, TER"),
    Package("safetensors", None, "weights without pickle"),
    Package("snowballstemmer", "stems", "stems for METEOR"),
    Package("polars", "corpus", "checking and filtering corpora"),
    Package("fastexcel", "xlsx", "reading .xlsx workbooks"),
    Package("torch", "train", "models, training, search"),
    Package("ctranslate2", "serve", "fast inference without PyTorch"),
    Package("onnxruntime", "onnx", "exports of any model, without PyTorch"),
    Package("onnx", "export", "writing ONNX files"),
    Package("transformers", "hugging-face", "exports for Hugging Face"),
    Package("fastapi", "serve", "the HTTP server"),
    Package("pillow", "image", "reading pictures"),
    Package("soundfile", "audio", "reading recordings"),
    Package("resvg_py", "figure", "attention maps as PNG"),
    Package("ray", "scale", "work on several machines"),
)


def info(markdown: bool = typer.Option(False, "--markdown", help="Print a Markdown table for a bug report.")) -> None:
    """List installed packages, and commands to install missing ones.

    \b
      heedful info
      heedful info --markdown
    """  # noqa: D301  # a real backspace: the next paragraph keeps its lines
    rows = [
        ("heedful", __version__, ""),
        ("Python", platform.python_version(), f"{platform.system()} {platform.machine()}"),
        *(
            (package.name, installed_version(package.name) or "missing", describe_purpose(package))
            for package in PACKAGES
        ),
    ]
    if markdown:
        typer.echo("| package | version | |\n| --- | --- | --- |")
    width = max(len(name) for name, _, _ in rows)
    for name, number, note in rows:
        typer.echo(f"| {name} | {number} | {note} |" if markdown else f"{name:{width}}  {number:14} {note}".rstrip())


def describe_purpose(package: Package) -> str:
    is_missing = installed_version(package.name) is None and package.extra is not None
    return f"{package.purpose}: pip install 'heedful[{package.extra}]'" if is_missing else package.purpose


def installed_version(package: str) -> str | None:
    """The version, or None; the package is not imported."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(package)
    except PackageNotFoundError:
        return None
