"""`heedful import`: convert a model of another toolkit to a model directory."""

import shlex

import typer

from heedful.cli.arguments import find_languages


def import_model(
    folder: str = typer.Argument(
        ..., help="A folder of Hugging Face's Marian (such as OPUS-MT), of CTranslate2, or of g2p_en."
    ),
    out: str = typer.Option(..., "--out", help="The model directory to write."),
    pair: str | None = typer.Option(None, "--pair", help="The languages, such as en-de, if the folder lacks them."),
) -> None:
    """Import a model of another toolkit, such as OPUS-MT, to translate with, inspect, fine-tune or serve it.

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
