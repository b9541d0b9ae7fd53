"""`heedful generate`: continue texts with a language model."""

import sys
from dataclasses import replace
from typing import TYPE_CHECKING

import typer

from heedful.cli.streams import format_translation, print_utf8, stop_at_closed_pipe, write_line
from heedful.errors import ConfigError
from heedful.text.normalize import decode_line

if TYPE_CHECKING:
    from heedful.engines.base import SamplingOptions


def generate(
    model: str = typer.Argument(..., help="A language model: a model directory or a run directory."),
    prefix: str = typer.Option("", "--prefix", help="Text to continue, up to the end of a word; - reads lines."),
    count: int = typer.Option(1, "--count", min=1, help="Number of texts: samples, or the best of a beam."),
    temperature: float = typer.Option(
        1.0, "--temperature", help="Below 1 sharpens the distribution, above 1 flattens it."
    ),
    top_k: int | None = typer.Option(None, "--top-k", help="Draw from the k most probable tokens."),
    top_p: float | None = typer.Option(
        None, "--top-p", help="Draw from the most probable tokens with total probability p."
    ),
    seed: int = typer.Option(0, "--seed", help="Random seed."),
    beam: int | None = typer.Option(None, "--beam", help="Search for probable texts instead of sampling; 1 is greedy."),
    length_penalty: float | None = typer.Option(
        None, "--length-penalty", help="With --beam: above 1 favors long output, below 1 short."
    ),
    as_json: bool = typer.Option(False, "--json", help="Print a JSON object for each text, with scores and tokens."),
    threads: int | None = typer.Option(None, "--threads", help="CPU threads (default: chosen by PyTorch)."),
) -> None:
    """Write texts with a language model: sampled by default, or searched with --beam.

    \b
      heedful generate my-language-model --count 5 --top-p 0.9
      heedful generate my-language-model --prefix "The cat" --beam 5
    """  # noqa: D301  # a real backspace: the next paragraph keeps its lines
    sampling = make_sampling(beam, length_penalty, temperature, top_k, top_p, seed)
    from heedful.translation.loading import load
    from heedful.translation.sources import require_language_model
    from heedful.translation.translator import TranslationOptions

    language_model = require_language_model(load(model, threads=threads))
    options = TranslationOptions(beam=beam, num_best=count, length_penalty=length_penalty, sampling=sampling)
    print_utf8()
    lines = (decode_line(line.rstrip(b"\n"))[0] for line in sys.stdin.buffer) if prefix == "-" else iter([prefix])
    with stop_at_closed_pipe():
        for number, text in enumerate(language_model.stream(([line] for line in lines), options)):
            for continuation in (replace(text, alternatives=()), *text.alternatives):
                write_line(format_translation(number, continuation, None, as_json))


def make_sampling(
    beam: int | None,
    length_penalty: float | None,
    temperature: float,
    top_k: int | None,
    top_p: float | None,
    seed: int,
) -> "SamplingOptions | None":
    """The sampling options; None with --beam, which excludes them."""
    from heedful.engines.base import SamplingOptions

    if beam is None:
        if length_penalty is not None:
            raise ConfigError("--length-penalty needs --beam: add --beam 5, or remove it")
        return SamplingOptions(temperature, top_k, top_p, seed)
    if (temperature, top_k, top_p, seed) != (1.0, None, None, 0):
        raise ConfigError("--temperature, --top-k, --top-p and --seed are for sampling: remove them, or remove --beam")
    return None
