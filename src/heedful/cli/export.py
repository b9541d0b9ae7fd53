"""`heedful export`: a model in the format of another engine, with a proof."""

import shlex
from pathlib import Path

import typer

from heedful.cli.prepare import nearby
from heedful.errors import ConfigError


def export(
    model: str = typer.Argument(..., help="A model directory, or the run that made it."),
    to: str = typer.Option("ctranslate2", "--to", help="ctranslate2, hugging_face, onnx or argos."),
    out: str | None = typer.Option(None, "--out", help="Where it goes (default: beside the model, named after it)."),
    rounding: str | None = typer.Option(
        None, "--rounding", help="float32; of ctranslate2 and argos also int8, int8_float32, bfloat16, float16."
    ),
    probes: str | None = typer.Option(
        None, "--probes", help="Sentences to prove it with, one a line (default: what the run validated on)."
    ),
) -> None:
    """Write a model as other tools read it, and prove that it says the same there; what does not is not written.

    \b
      heedful export my-model --to ctranslate2 --rounding int8
      heedful export my-model --to hugging_face --probes some.en
    """  # noqa: D301  # a real backspace: the next paragraph keeps its lines
    from heedful.bundle import open_bundle
    from heedful.exporters.api import default_export_path, find_format
    from heedful.exporters.api import export as make

    lines = None
    if probes is not None:
        lines = [line for line in read(probes) if line.strip()]
        if not lines:
            raise ConfigError(f"{probes} has no sentences in it")
    kind = find_format(to)
    rounding = rounding or kind.quantizations[0]
    bundle = open_bundle(model)
    place = Path(out) if out else default_export_path(bundle, to, rounding)
    proof = make(
        bundle.folder,
        place,
        to=to,
        quantization=rounding,
        probes=lines,
        on_progress=lambda what: typer.echo(what, err=True),
    )
    languages = bundle.description
    typer.echo(f"heedful export  {languages.source} \u2192 {languages.target}  for {to}, {rounding}")
    typer.echo(f"  proof  {proof.summary}")
    typer.echo(f"   size  {size_of(place)}; the model's own {size_of(bundle.folder)}")
    typer.echo(f"    out  {nearby(place)}")
    typer.echo(f"Next: {kind.next_command.format(shlex.quote(str(nearby(place))))}")


def read(file: str) -> list[str]:
    """The lines of a file."""
    try:
        return Path(file).read_text(encoding="utf-8-sig").splitlines()
    except OSError as error:
        raise ConfigError(f"--probes {file} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"--probes {file} is not UTF-8; save it as UTF-8") from None


def size_of(place: Path) -> str:
    """What a file or a folder takes on the disk."""
    files = [place] if place.is_file() else [one for one in place.rglob("*") if one.is_file()]
    return f"{sum(one.stat().st_size for one in files) / 1e6:,.1f} MB"
