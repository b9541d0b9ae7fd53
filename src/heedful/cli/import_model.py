"""`heedful import`: convert another toolkit's model to a model directory."""

import shlex

import typer

from heedful.corpus.arguments import find_languages


def import_model(
    folder: str = typer.Argument(
        ..., help="Directory of a Hugging Face Marian (such as OPUS-MT), CTranslate2 or g2p_en model."
    ),
    out: str = typer.Option(..., "--out", help="Model directory to write."),
    pair: str | None = typer.Option(None, "--pair", help="Language pair, such as en-de (default: from the model)."),
) -> None:
    """Import another toolkit's model, such as OPUS-MT.

    The result is a model directory to translate with, inspect, fine-tune or serve.

    \b
      heedful import opus-mt-en-de --out en-de
      heedful import some-ctranslate2-model --pair en-de --out en-de
      heedful train mine.en mine.de --from en-de --out mine --time 30m
    """  # noqa: D301  # a real backspace: the next paragraph keeps its lines
    from heedful.importers.api import import_model as convert

    bundle = convert(folder, out, languages=find_languages([], pair) if pair else None)
    description = bundle.description
    typer.echo(f"heedful import  {description.source} \u2192 {description.target}  {description.parameters:,} weights")
    typer.echo(f"    out  {bundle.folder}")
    typer.echo(f"Next: heedful translate {shlex.quote(out)}")
