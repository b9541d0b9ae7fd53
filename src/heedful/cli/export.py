"""`heedful export`: write a model in the format of another engine and verify its output."""

import shlex
from pathlib import Path

import typer

from heedful.cli.prepare import path_from_here
from heedful.errors import ConfigError


def export(
    model: str = typer.Argument(..., help="A model directory or a run directory."),
    to: str = typer.Option("ctranslate2", "--to", help="Format: ctranslate2, hugging_face, onnx or argos."),
    out: str | None = typer.Option(None, "--out", help="Output path (default: next to the model, named after it)."),
    quantization: str | None = typer.Option(
        None,
        "--quantization",
        help="float32; ctranslate2 and argos also: int8, int8_float32, bfloat16 or float16 (default: int8 for argos, "
        "else float32).",
    ),
    probes: str | None = typer.Option(
        None,
        "--probes",
        help="File with sources to verify the export with, one sentence or path of a picture per line (default: the "
        "validation set).",
    ),
) -> None:
    """Export a model to another format and verify its output.

    If the export does not translate like the model, it is not written.

    \b
      heedful export my-model --to ctranslate2 --quantization int8
      heedful export my-model --to hugging_face --probes some.en
    """  # noqa: D301  # a real backspace: the next paragraph keeps its lines
    from heedful.bundle import open_bundle
    from heedful.exporters.api import default_export_path, find_format
    from heedful.exporters.api import export as export_model

    sentences = None
    if probes is not None:
        sentences = [line for line in read_probes(probes) if line.strip()]
        if not sentences:
            raise ConfigError(f"--probes {probes} contains no sentences; add some, one per line")
    export_format = find_format(to)
    quantization = quantization or export_format.quantizations[0]
    bundle = open_bundle(model)
    folder = Path(out) if out else default_export_path(bundle, to, quantization)
    proof = export_model(
        bundle.folder,
        folder,
        to=to,
        quantization=quantization,
        probes=sentences,
        on_progress=lambda text: typer.echo(text, err=True),
    )
    languages = bundle.description
    typer.echo(f"heedful export  {languages.source} \u2192 {languages.target}  for {to}, {quantization}")
    typer.echo(f"  proof  {proof.summary}")
    typer.echo(f"   size  {format_size(folder)}; the model directory {format_size(bundle.folder)}")
    typer.echo(f"    out  {path_from_here(folder)}")
    typer.echo(f"Next: {export_format.next_command.format(shlex.quote(str(path_from_here(folder))))}")


def read_probes(file: str) -> list[str]:
    try:
        return Path(file).read_text(encoding="utf-8-sig").splitlines()
    except OSError as error:
        raise ConfigError(f"--probes {file} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"--probes {file} is not UTF-8; save it as UTF-8") from None


def format_size(path: Path) -> str:
    files = [path] if path.is_file() else [file for file in path.rglob("*") if file.is_file()]
    return f"{sum(file.stat().st_size for file in files) / 1e6:,.1f} MB"
