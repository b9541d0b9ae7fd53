"""`heedful calibrate`: fit how sure a model is, on text that it was not trained on."""

import json
import shlex
from collections import Counter
from dataclasses import asdict

import typer


def calibrate(
    model: str = typer.Argument(..., help="A model directory or a run directory; its statistics are replaced."),
    source: str = typer.Option(..., "--source", help="Source sentences that are not in the training text."),
    reference: str = typer.Option(..., "--reference", help="Their translations, line by line."),
    as_json: bool = typer.Option(False, "--json", help="Print the fitted numbers as JSON."),
) -> None:
    """Calibrate the confidence of a model on at least 2,000 sentences.

    Training does this at its end if the validation set is large enough. Exports keep the calibration of their model.

    \b
      heedful calibrate my-model --source valid.en --reference valid.de
      heedful calibrate my-model --source valid.en --reference valid.de --json
    """  # noqa: D301  # a real backspace: the next paragraph keeps its lines
    from heedful.cli.streams import ProgressReporter
    from heedful.confidence import LABEL_THRESHOLD, THRESHOLDS, choose_label
    from heedful.translation.calibrate import calibrate as calibrate_model
    from heedful.translation.evaluation import read_lines

    reporter = ProgressReporter()

    def report_sentences(done: int, total: int) -> None:
        if done < total and reporter.is_report_due():
            typer.echo(f"heedful: translated {done:,} of {total:,} sentences", err=True)

    calibration = calibrate_model(model, read_lines(source), read_lines(reference), on_batch=report_sentences)
    if as_json:
        typer.echo(json.dumps(asdict(calibration)))
        return
    curve = calibration.probabilities[THRESHOLDS.index(LABEL_THRESHOLD)]
    labels = Counter(map(choose_label, curve))
    shares = ", ".join(f"{label} {labels[label] / len(curve):.0%}" for label in ("sure", "check", "unsure"))
    typer.echo(
        f"{model}: calibrated on {calibration.sentences:,} sentences; {shares}. "
        f"Next: heedful translate {shlex.quote(model)} --confidence"
    )
