"""`heedful translate`: translate text line by line."""

import shlex
import sys
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import typer

from heedful import __version__
from heedful.cli.streams import (
    ProgressReporter,
    describe_confidence,
    format_translation,
    open_input,
    print_utf8,
    read_windows,
    stop_at_closed_pipe,
    write_line,
)
from heedful.errors import ConfigError

if TYPE_CHECKING:
    from heedful.translation.translator import TranslationOptions, Translator

NOT_WITH_CONFIDENCE = {  # cannot be combined with --confidence -> advice
    "--ensemble": "each model is calibrated alone; remove --ensemble",
    "--tmx": "a translation memory has no place for it; remove one of the two options",
    "--nbest": "Marian's format has no place for it; use --json",
    "--beam": "it is calibrated for the beam of the model; remove --beam",
    "--length-penalty": "it is calibrated for the penalty of the model; remove --length-penalty",
    "--prefix": "it is not calibrated for translations with a forced beginning; remove --prefix",
    "--sample": "it is not calibrated for samples; remove --sample",
}
NOT_IN_BULK = {  # cannot be combined with --bulk -> advice
    "FILE": "--bulk reads IN and writes OUT; remove FILE",
    "--ensemble": "each worker loads only one model; remove --ensemble",
    "--tmx": "--bulk cannot write translation memories; remove one of the two options",
    "--nbest": "--bulk writes one translation per line; remove --nbest (--json has scores)",
    "--alignment": "--bulk does not write word links; remove --alignment",
    "--sample": "a resumed run must give the same result; remove --sample",
    "--confidence": "--json has the confidence of each line; remove --confidence",
    "--device": "workers run on CPU cores; remove --device",
    "--threads": "each worker has one thread; use --workers N instead",
}


def translate(
    model: str = typer.Argument(
        ..., help="A model directory, a run directory, an export, or a sample: pt-en, ru-en, pt-en-gru."
    ),
    files: list[str] = typer.Argument(
        ["-"],
        help="Text file, one sentence or paragraph per line; - is standard input. For a model of pictures or "
        "recordings: these files, or a .txt or .jsonl with their paths.",
    ),
    others: list[str] = typer.Option(
        [], "--ensemble", metavar="MODEL", help="Another model with the same vocabulary, for an ensemble; repeatable."
    ),
    beam: int | None = typer.Option(None, "--beam", help="Beam size (default: the model's)."),
    nbest: int | None = typer.Option(
        None, "--nbest", help="Print the N best translations of each line, in Marian's format."
    ),
    alignment: str | None = typer.Option(
        None, "--alignment", help="Append word links such as 0-0 1-2; method: naive, shifted or best."
    ),
    alignment_threshold: float | None = typer.Option(
        None,
        "--alignment-threshold",
        help="With --alignment: print links with at least this share of a word's attention, not only the strongest.",
    ),
    soft: bool = typer.Option(
        False, "--soft", help="With --alignment: print attention weights instead of links, in Marian's format."
    ),
    confidence: bool | None = typer.Option(
        None,
        "--confidence/--no-confidence",
        help="Append sure, check or unsure, and the probability that chrF is above 50 (default: --json and keyboard).",
    ),
    as_json: bool = typer.Option(
        False, "--json", help="Print a JSON object for each line, with scores, tokens and flags."
    ),
    sample: bool = typer.Option(False, "--sample", help="Sample instead of running beam search."),
    temperature: float = typer.Option(
        1.0, "--temperature", help="With --sample: below 1 sharpens the distribution, above 1 flattens it."
    ),
    top_k: int | None = typer.Option(None, "--top-k", help="With --sample: draw from the k most probable tokens."),
    top_p: float | None = typer.Option(
        None, "--top-p", help="With --sample: draw from the most probable tokens with total probability p."
    ),
    seed: int = typer.Option(0, "--seed", help="With --sample: random seed."),
    length_penalty: float | None = typer.Option(
        None, "--length-penalty", help="Above 1 favors long output, below 1 short (default: the model's)."
    ),
    prefix: str = typer.Option("", "--prefix", help="Text that every translation must start with."),
    tag: str | None = typer.Option(
        None, "--tag", help="Tag to put before every source text; the model must have been trained with it."
    ),
    split_sentences: bool | None = typer.Option(
        None,
        "--split-sentences/--whole-lines",
        help="Translate the sentences of a line separately, or the whole line (default: as the model was trained).",
    ),
    suppress_words: str | None = typer.Option(
        None,
        "--suppress-words",
        metavar="FILE",
        help="Words that no translation may contain, one per line (default: the model's; an empty file allows all).",
    ),
    tmx: tuple[str, str] | None = typer.Option(
        None, "--tmx", metavar="IN OUT", help="Translate the units of a translation memory that have no target."
    ),
    bulk: tuple[str, str] | None = typer.Option(
        None, "--bulk", metavar="IN OUT", help="Translate a large file with several workers; rerun to resume."
    ),
    workers: int | None = typer.Option(None, "--workers", help="With --bulk: local processes (default: one per core)."),
    cluster: str | None = typer.Option(
        None,
        "--cluster",
        help="With --bulk: Ray cluster: ray (the cluster that this machine is part of), host:6379 or ray://host:10001.",
    ),
    as_text: bool = typer.Option(
        False, "--as-text", help="Translate every line of a file such as .html or .json, with its markup and keys."
    ),
    device: str | None = typer.Option(None, "--device", help="cpu, cuda or mps (default: cpu)."),
    threads: int | None = typer.Option(None, "--threads", help="CPU threads (default: chosen by PyTorch)."),
) -> None:
    """Translate text line by line, describe pictures, or transcribe recordings.

    Blank lines stay blank. Warnings go to standard error.

    \b
      heedful translate my-model < news.en > news.de
      echo "Good morning" | heedful translate my-model --alignment shifted
      heedful translate my-captions cat.png dog.png
      heedful translate my-model --bulk crawl.en crawl.de --workers 16
    """  # noqa: D301  # a real backspace: the next paragraph keeps its lines
    file = files[0] if files else "-"
    if not sample and (temperature, top_k, top_p, seed) != (1.0, None, None, 0):
        raise ConfigError(
            "--temperature, --top-k, --top-p and --seed need --sample: add --sample, or remove these options"
        )
    if (soft or alignment_threshold is not None) and not alignment:
        raise ConfigError(
            "--alignment-threshold and --soft need --alignment: add --alignment shifted, or remove these options"
        )
    if soft and alignment_threshold is not None:
        raise ConfigError(
            "--alignment-threshold selects links, but --soft prints weights instead: use only one of the two options"
        )
    if tmx and (file != "-" or as_json or nbest is not None or alignment):
        raise ConfigError("--tmx reads and writes translation memories: remove FILE, --json, --nbest and --alignment")
    if sample and (beam is not None or length_penalty is not None):
        raise ConfigError("--beam and --length-penalty need beam search: remove these options, or remove --sample")
    if confidence:
        conflicts = {
            "--ensemble": others, "--tmx": tmx, "--nbest": nbest is not None and not as_json, "--sample": sample,
            "--beam": beam is not None, "--length-penalty": length_penalty is not None, "--prefix": prefix,
        }  # fmt: skip
        for name in (name for name, is_present in conflicts.items() if is_present):
            raise ConfigError(f"{name} cannot be combined with --confidence: {NOT_WITH_CONFIDENCE[name]}")
    from heedful.translation.suppression import read_words

    words = None if suppress_words is None else read_words(suppress_words)
    if bulk:
        conflicts = {
            "FILE": file != "-", "--ensemble": others, "--tmx": tmx, "--nbest": nbest is not None,
            "--alignment": alignment, "--sample": sample, "--confidence": confidence, "--device": device,
            "--threads": threads is not None,
        }  # fmt: skip
        for name in (name for name, is_present in conflicts.items() if is_present):
            raise ConfigError(f"{name} cannot be combined with --bulk: {NOT_IN_BULK[name]}")
        search = {
            "beam": beam, "length_penalty": length_penalty, "prefix": prefix, "tag": tag,
            "split_sentences": split_sentences, "suppress_words": words,
        }  # fmt: skip
        translate_in_bulk(model, *bulk, search, as_json, as_text, cluster, workers)
        return
    if workers is not None or cluster is not None:
        raise ConfigError("--workers and --cluster need --bulk IN OUT: add --bulk IN OUT, or remove these options")
    from heedful.engines.base import SamplingOptions
    from heedful.translation.loading import load
    from heedful.translation.translator import TranslationOptions

    machine: dict[str, Any] = {"device": device or "cpu", "threads": threads}
    translator = load(model, others=others, **machine)
    from heedful.translation.sources import is_labeler

    kind = translator.bundle.description.input.kind
    if tmx and is_labeler(translator.bundle):
        raise ConfigError(f"{model} labels text, so it cannot fill a translation memory: remove --tmx")
    if kind == "none":
        raise ConfigError(f"{model} is a language model, which translates nothing: use heedful generate")
    if len(files) > 1 and kind == "text":
        raise ConfigError(f"unexpected argument `{files[1]}`; pipe the text in, or translate one file at a time")
    is_media = kind not in ("text", "none")
    if is_media and (tmx or confidence):
        raise ConfigError("--tmx and --confidence are for models that translate text: remove them")
    is_interactive = file == "-" and not tmx and kind == "text" and sys.stdin.isatty()
    if is_interactive:
        typer.echo(
            "heedful: type a line, or press Ctrl-D to end; to translate a file: heedful translate MODEL FILE", err=True
        )
    if confidence and translator.calibration is None:
        raise ConfigError(
            f"{model} has no calibration for --confidence: run heedful calibrate on its model directory, with at least "
            "2,000 sentence pairs (an export for Hugging Face cannot report confidence)"
        )
    options = TranslationOptions(
        beam=beam,
        num_best=1 if nbest is None else nbest,
        length_penalty=length_penalty,
        sampling=SamplingOptions(temperature, top_k, top_p, seed) if sample else None,
        prefix=prefix,
        tag=tag,
        alignment=alignment,
        alignment_threshold=alignment_threshold,
        soft_alignment=soft,
        split_sentences=split_sentences,
        suppress_words=words,
        confidence=as_json or is_interactive if confidence is None else confidence,
    )
    reporter = ProgressReporter()
    print_utf8()
    if is_media:
        from heedful.cli.media import describe_media

        options = replace(options, confidence=False)
        with stop_at_closed_pipe():
            describe_media(translator, files, options, reporter, nbest, as_json)
        return
    if tmx:
        fill_translation_memory(translator, *tmx, options, reporter)
        return
    with stop_at_closed_pipe(), open_input(file, as_text) as stream:
        windows = reporter.report_between(read_windows(stream, reporter))
        for number, translation in enumerate(translator.stream(windows, options, reporter.report_segments)):
            reporter.count_line(number, translation)
            shown = {"show_confidence": bool(confidence), "show_probability": is_labeler(translator.bundle)}
            write_line(format_translation(number, translation, nbest, as_json, **shown))
            if is_interactive and not (confidence or as_json) and translation.confidence:
                typer.echo(f"heedful: {describe_confidence(translation.confidence)}", err=True)
        reporter.finish()


def fill_translation_memory(
    translator: "Translator", tmx_in: str, tmx_out: str, options: "TranslationOptions", reporter: ProgressReporter
) -> None:
    """Translate the units of a .tmx that have no target, and print the counts."""
    from heedful.corpus.tmx import fill_memory

    languages = translator.bundle.description
    num_translated = 0

    def translate(texts: list[str]) -> list[str]:
        nonlocal num_translated
        translations = []
        for translation in translator.stream(reporter.report_between([texts]), options, reporter.report_segments):
            reporter.count_line(num_translated, translation)
            num_translated += 1
            translations.append(translation.text)
        return translations

    counts = fill_memory(tmx_in, tmx_out, languages.source, languages.target, translate, __version__)
    reporter.finish()
    typer.echo(
        f"{tmx_out}: {counts.new:,} units translated, {counts.kept:,} already had a translation, "
        f"{counts.without_source:,} have no text in {languages.source}",
        err=True,
    )


def translate_in_bulk(
    model: str,
    file_in: str,
    file_out: str,
    search: dict[str, Any],
    as_json: bool,
    as_text: bool,
    cluster: str | None,
    workers: int | None,
) -> None:
    """Translate a file in pieces with several workers, and print a summary."""
    from rich.console import Console

    from heedful.cli.prepare import show_stages
    from heedful.corpus.launchers import make_launcher
    from heedful.translation.bulk import count_cores, translate_file

    start = time.monotonic()
    worker_launcher = make_launcher(cluster, count_cores() if cluster is None and workers is None else workers)
    with show_stages(Console(stderr=True)) as handle_progress:
        done = translate_file(
            model,
            file_in,
            file_out,
            **search,
            as_json=as_json,
            as_text=as_text,
            launcher=worker_launcher,
            progress=handle_progress,
        )
    seconds = time.monotonic() - start
    counts = {
        "blank": done.blank,
        "with invalid UTF-8 replaced": done.replaced,
        "already done": done.lines - done.new_lines,
    }
    details = ", ".join(f"{number:,} {name}" for name, number in counts.items() if number)
    flags = ", ".join(f"{number:,} {name}" for name, number in done.flags.items())
    following = (
        "docs/flags.md explains the flags; --json shows which lines are flagged"
        if flags and not as_json
        else shlex.join(["head", "-n", "3", file_out])
    )
    typer.echo(
        f"{file_out}: {done.lines:,} lines{f' ({details})' if details else ''}; flags: {flags or 'none'}; "
        f"{done.new_lines / max(seconds, 1e-9):,.0f} sentences per second in {seconds:,.1f} s. Next: {following}",
        err=True,
    )
