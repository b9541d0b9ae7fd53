"""What `heedful evaluate` and `heedful compare` share: warnings, progress and the format of p-values."""

from collections.abc import Iterable, Iterator, Sequence

import typer

from heedful.text.normalize import escape_invisible


def report_windows(windows: Iterable[list[str]]) -> Iterator[list[str]]:
    """Yield the windows that a model translates, and print progress between them."""
    from heedful.cli.streams import ProgressReporter

    reporter = ProgressReporter()
    for window in reporter.report_between(windows):
        yield window
        reporter.lines += len(window)


def print_warnings(texts: Sequence[str]) -> None:
    for text in texts:
        typer.echo(f"heedful: warning: {escape_invisible(text)}", err=True)


def format_p_value(p: float | None) -> str:
    """0.123, or < 0.001; empty for None."""
    return "" if p is None else f"{p:.3f}" if p >= 0.001 else "< 0.001"
