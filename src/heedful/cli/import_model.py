"""`heedful import`: what others trained, as a model directory."""

import shlex

import typer

from heedful.cli.arguments import languages


def import_model(
    folder: str = typer.Argument(
        ..., help="A folder of Hugging Face's Marian (such as OPUS-MT), of CTranslate2, or of g2p_en."
    ),
    out: str = typer.Option(..., "--out", help="Where the model directory goes."),
    pair: str | None = typer.Option(None, "--pair", help="The languages, such as en-de, where the folder is silent."),
) -> None:
    """Import a model that others trained, such as OPUS-MT, to translate with, look into, fine-tune and serve.

    \b
      heedful import opus-mt-en-de --out en-de
      heedful import some-ctranslate2-model --pair en-de --out en-de
      heedful train mine.en mine.de --from en-de --out mine --time 30m
    """  # noqa: D301  # a real backspace: the next paragraph keeps its lines
    from heedful.importers.api import import_model as make

    bundle = make(folder, out, languages=languages([], pair) if pair else None)
    about = bundle.description
    typer.echo(f"heedful import  {about.source} \u2192 {about.target}  {about.parameters:,} weights")
    typer.echo(f"    out  {bundle.folder}")
    typer.echo(f"Next: heedful translate {shlex.quote(out)}")
