"""`heedful words`: learn word vectors, and look at them."""

import json
import shlex
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from typer.core import TyperGroup

from heedful.errors import ConfigError, DataError
from heedful.text.normalize import escape_invisible

if TYPE_CHECKING:
    from heedful.embeddings.word2vec import WordsProgress


class LearnByDefault(TyperGroup):
    """`heedful words FILE` is short for `heedful words learn FILE`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0] not in self.commands and args[0] not in ("--help", "-h"):
            args = ["learn", *args]
        return super().parse_args(ctx, args)


words_app = typer.Typer(
    cls=LearnByDefault,
    no_args_is_help=True,
    rich_markup_mode=None,
    help="""Learn word vectors from text, and look at them.

\b
  heedful words corpus.txt --out words.vec     learn (the same as heedful words learn)
  heedful words near words.vec dog             the words with the most similar vectors
  heedful words analogy words.vec man king woman
  heedful words map words.vec --out map.html   a map of frequent words
""",
)
VECTORS = typer.Argument(..., help="Word vectors: a .vec or .txt file of heedful, fastText, GloVe or NILC.")
MAX_WORDS = typer.Option(None, "--max-words", min=1, help="Read only the first words of the file, the most frequent.")
COUNT = typer.Option(10, "--count", min=1, help="How many words to print.")
AS_JSON = typer.Option(False, "--json", help="Print JSON.")


@words_app.command("learn")
def learn(
    corpus: list[str] = typer.Argument(..., help="Text files (plain, .gz or .zst)."),
    out: str = typer.Option(..., "--out", help="File for the vectors, such as words.vec."),
    method: str = typer.Option("skip-gram", "--method", help="skip-gram or cbow."),
    width: int = typer.Option(100, "--width", help="Length of the vectors."),
    window: int = typer.Option(5, "--window", help="Largest distance of a word and its context."),
    negatives: int = typer.Option(5, "--negatives", help="Negative words per pair; 0: the full softmax."),
    min_count: int = typer.Option(5, "--min-count", help="Ignore rarer words."),
    subsample: float = typer.Option(1e-3, "--subsample", help="Skip words above this frequency at random; 0: never."),
    epochs: int = typer.Option(5, "--epochs", help="How often to read the text."),
    learning_rate: float = typer.Option(0.025, "--learning-rate", help="At the start; it falls linearly."),
    keep_case: bool = typer.Option(False, "--keep-case", help="Do not lower-case the words."),
    seed: int = typer.Option(1, "--seed", help="Seed of all random numbers."),
) -> None:
    """Learn word vectors with word2vec: skip-gram or CBOW, with negative sampling or the full softmax.

    The text is streamed: memory does not depend on its length.

    \b
      heedful words corpus.txt --out words.vec
      heedful words learn corpus.txt.gz --out words.vec --method cbow --width 300
    """  # noqa: D301  # a real backspace: the next paragraph keeps its lines
    from heedful.embeddings.vectors import write_vectors
    from heedful.embeddings.word2vec import WordOptions, train_vectors

    options = WordOptions(
        method=method,
        width=width,
        window=window,
        negatives=negatives,
        min_count=min_count,
        subsample=subsample,
        epochs=epochs,
        learning_rate=learning_rate,
        keep_case=keep_case,
        seed=seed,
    )
    if not Path(out).absolute().parent.is_dir():
        raise ConfigError(f"--out {out}: there is no directory {Path(out).parent}; create it first")
    if Path(out).is_dir() or any(Path(out).resolve() == Path(path).resolve() for path in corpus):
        raise ConfigError(f"--out {out} is a directory or the corpus itself: choose another name")
    vectors = train_vectors(open_corpus(corpus), options, make_progress_printer())
    write_vectors(Path(out), vectors)
    typer.echo(f"{out}: {len(vectors.words):,} words, vectors of width {width}")
    typer.echo(f"Next: {shlex.join(['heedful', 'words', 'near', out, vectors.words[len(vectors.words) // 4]])}")


@words_app.command("near")
def near(
    vectors: str = VECTORS,
    words: list[str] = typer.Argument(..., help="Words."),
    count: int = COUNT,
    max_words: int | None = MAX_WORDS,
    as_json: bool = AS_JSON,
) -> None:
    """Print the words whose vectors have the largest cosine.

    \b
      heedful words near words.vec dog house
    """  # noqa: D301  # a real backspace: the next paragraph keeps its lines
    from heedful.embeddings.vectors import read_vectors

    table = read_vectors(Path(vectors), max_words)
    print_neighbors({word: table.near(word, count) for word in words}, as_json)


@words_app.command("analogy")
def analogy(
    vectors: str = VECTORS,
    first: str = typer.Argument(..., help="man, as in: man is to king ..."),
    second: str = typer.Argument(..., help="king"),
    third: str = typer.Argument(..., help="woman, as in: ... as woman is to ?"),
    count: int = COUNT,
    max_words: int | None = MAX_WORDS,
    as_json: bool = AS_JSON,
) -> None:
    """Complete an analogy: FIRST is to SECOND as THIRD is to what?

    \b
      heedful words analogy words.vec man king woman
    """  # noqa: D301  # a real backspace: the next paragraph keeps its lines
    from heedful.embeddings.vectors import read_vectors

    answers = read_vectors(Path(vectors), max_words).analogy(first, second, third, count)
    print_neighbors({f"{first} : {second} = {third} : ?": answers}, as_json)


@words_app.command("map")
def draw(
    vectors: str = VECTORS,
    words: list[str] = typer.Argument(None, help="Words to draw (default: the most frequent ones)."),
    out: str = typer.Option(..., "--out", help="File for the page, such as map.html."),
    count: int = typer.Option(300, "--count", min=3, help="How many of the most frequent words to draw."),
    max_words: int | None = MAX_WORDS,
) -> None:
    """Draw words on a map, as a web page: similar words are often near each other.

    \b
      heedful words map words.vec --out map.html
      heedful words map words.vec one two three red green blue --out map.html
    """  # noqa: D301  # a real backspace: the next paragraph keeps its lines
    from heedful.embeddings.map_page import render_map, select_words
    from heedful.embeddings.vectors import read_vectors
    from heedful.html import write_html

    chosen = select_words(read_vectors(Path(vectors), max_words), words or [], count)
    if len(chosen.words) < 3:
        raise ConfigError("a map needs at least three words")
    write_html(Path(out), render_map(chosen, Path(vectors).name))
    typer.echo(f"{out}: {len(chosen.words):,} words. Open it in a browser")


def open_corpus(paths: Sequence[str]) -> Callable[[], Iterable[str]]:
    """A function that reads the lines of all files; lines that are not UTF-8 are an error."""
    from heedful.corpus.text_files import iterate_lines, suggest_path

    for path in paths:
        if not Path(path).is_file():
            raise DataError(f"there is no file {path}{suggest_path(Path(path))}")

    def lines() -> Iterator[str]:
        for path in paths:
            for number, line in enumerate(iterate_lines(Path(path)), 1):
                try:
                    yield line.decode()
                except UnicodeDecodeError:
                    raise DataError(f"{path}:{number}: not UTF-8; save the file as UTF-8") from None

    return lines


def make_progress_printer() -> "Callable[[WordsProgress], None]":
    """A function that prints the progress every few seconds."""
    from heedful.cli.streams import ProgressReporter

    reporter = ProgressReporter()

    def report(progress: "WordsProgress") -> None:
        if reporter.is_report_due():
            speed = progress.words / (reporter.last_report - reporter.start)
            share = progress.words / progress.total_words
            typer.echo(f"heedful: epoch {progress.epoch}, {share:.0%}, {speed:,.0f} words per second", err=True)

    return report


def print_neighbors(neighbors: dict[str, list[tuple[str, float]]], as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps({query: [list(pair) for pair in pairs] for query, pairs in neighbors.items()}))
        return
    for query, pairs in neighbors.items():
        typer.echo(escape_invisible(query))
        for word, cosine in pairs:
            typer.echo(f"  {cosine:6.3f}  {escape_invisible(word)}")
