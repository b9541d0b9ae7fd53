"""report.html: one page about a run, which needs no network, no server and no JavaScript.

    write_report(Path("run"))        # reads the files of run/, writes run/report.html

It reads metrics.jsonl, heedful.toml and requested.json of the run, and the manifests of its corpus and its model. The
same files always give the same page. torch is not needed.
"""

import json
import platform
import tomllib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any

import heedful
from heedful.html import (
    Curve,
    Html,
    Plot,
    draw_chart,
    escape_text,
    fill_template,
    remark,
    section,
    table,
    tag,
    write_html,
)

REPORT = "report.html"
TEMPLATE = Path(__file__).with_name(REPORT)
MANIFEST = "manifest.json"  # of a model, and of a prepared corpus
LABELS = {"bleu": "BLEU", "chrf": "chrF", "torch": "PyTorch"}
SEARCH_LABELS = {"beam": "beam size", "length_penalty": "length penalty"}
MAX_COMPARED_PIECES = 400  # longer sentences are not compared

Record = Mapping[str, Any]


def write_report(run: Path) -> Path:
    """Write run/report.html atomically and return its path."""
    write_html(run / REPORT, render_report(run))
    return run / REPORT


def render_report(run: Path) -> str:
    toml, requested = (run / "heedful.toml").read_text(encoding="utf-8"), read_json(run / "requested.json")
    tree = tomllib.loads(toml)
    history = History.from_records(read_records(run / "metrics.jsonl"))
    plots = make_plots(history)
    curves = [tag("div", *map(draw_chart, plots), class_="charts")] if plots else []
    parts = (
        render_heading(tree, history, run / "model" / MANIFEST),
        section("Scores", render_scores(history)),
        section("Curves", curves),
        section("The same sentences at each validation", render_samples(history)),
        section("Data", render_data(tree, requested)),
        section("Choices and notes", render_notes(history)),
        section("Settings", render_settings(toml, tree, requested)),
        section("Versions and hashes", render_versions(run, requested)),
    )
    return fill_template(
        TEMPLATE.read_text(encoding="utf-8"),
        title=f"{tree['source']} → {tree['target']}",
        body=Html("\n".join(parts)),
        data=[plot.to_json() for plot in plots],
    )


def read_json(path: Path) -> Record:
    """The content of a JSON file; empty if the file does not exist."""
    content: Record = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    return content


# ---------------------------------------------------------------------------------------------------- events


def read_records(path: Path) -> Iterator[Record]:
    """The records of metrics.jsonl; a partly written line is skipped."""
    for line in path.read_text(encoding="utf-8", errors="replace").split("\n"):
        try:
            yield json.loads(line)
        except ValueError:
            continue


@dataclass(frozen=True)
class History:
    """The events of a run, grouped by kind."""

    kinds: Mapping[str, list[Record]]

    @classmethod
    def from_records(cls, records: Iterable[Record]) -> "History":
        """Group records by kind; if a step was repeated after a rollback, only its last record counts."""
        kinds: dict[str, list[Record]] = defaultdict(list)
        for record in records:
            same_kind = kinds[record["event"]]
            if record["event"] in ("stepped", "validated"):
                while same_kind and is_superseded(same_kind[-1], record):
                    same_kind.pop()
            same_kind.append(record)
        return cls(kinds)

    def __getitem__(self, kind: str) -> list[Record]:
        return self.kinds.get(kind, [])

    def last(self, kind: str) -> Record:
        return self[kind][-1] if self[kind] else {}

    @property
    def last_step(self) -> int:
        """The last step that was logged or validated."""
        return max((record["step"] for kind in ("stepped", "validated") for record in self[kind]), default=0)

    @property
    def validations(self) -> list[Record]:
        """One validation per step, without those of other weights at the end of the run."""
        by_step: dict[int, Record] = {}
        for record in self["validated"]:
            if record["weights"] == self["validated"][0]["weights"]:
                by_step.setdefault(record["step"], record)
        return list(by_step.values())


def is_superseded(old: Record, new: Record) -> bool:
    return bool(old["step"] > new["step"]) or all(old.get(key) == new.get(key) for key in ("step", "weights"))


def mark_matches(reference: str, output: str) -> list[tuple[str, bool]]:
    """The words of an output (characters, if the reference has no spaces), and whether the reference contains them."""
    space = " " if " " in reference else ""
    expected, actual = (text.split(" ") if space else list(text) for text in (reference, output))
    if max(len(expected), len(actual)) > MAX_COMPARED_PIECES:
        return [(output, False)]
    blocks = SequenceMatcher(None, expected, actual, autojunk=False).get_matching_blocks()
    matching = {index for block in blocks for index in range(block.b, block.b + block.size)}
    return [(piece + space, index in matching) for index, piece in enumerate(actual)]


# ---------------------------------------------------------------------------------------------------- the sections


def render_heading(tree: Record, history: History, manifest: Path) -> Html:
    """The languages, how the run ended, and the main numbers."""
    began, stepped, ended = history.last("began"), history.last("stepped"), history.last("ended")
    validation_scores = ended.get("scores", {}).get("validation", {})
    tiles = {f"{LABELS[name]}, validation": f"{score['value']:.1f}" for name, score in validation_scores.items()}
    tiles["steps"] = f"{history.last_step:,}"
    if stepped:
        tiles["passes over the data"] = f"{stepped['epoch']:.1f}"
        tiles["time"] = str(timedelta(seconds=int({**stepped, **ended}["elapsed"])))
    if began:
        tiles["weights"], tiles["pairs"] = f"{began['parameters']:,}", f"{began['pairs']:,}"
        tiles["device"] = f"{began['device']}, {began['precision']}" + f" × {began['ranks']}" * (began["ranks"] > 1)
    status = "not finished"
    if ended:
        status = f"{ended['why']}; best weights: {ended['weights']}"
    if manifest.is_file():
        written = datetime.fromtimestamp(manifest.stat().st_mtime)
        status += f"; the model was written on {written:%Y-%m-%d at %H:%M}"
    return tag(
        "header",
        tag("h1", f"{tree['source']} → {tree['target']}"),
        remark(f"A training run of heedful: {status}."),
        tag("dl", *(tag("div", tag("dt", name), tag("dd", value)) for name, value in tiles.items()), class_="tiles"),
    )


def render_scores(history: History) -> Iterator[Html]:
    """The final scores with their signatures, and all validations."""
    final = history.last("ended").get("scores", {})
    rows = [
        (corpus, LABELS[name], round(score["value"], 2), score["signature"])
        for corpus, scores in final.items()
        if isinstance(scores, dict)
        for name, score in scores.items()
    ]
    if rows:
        search = [f"{label} {final[key]}" for key, label in SEARCH_LABELS.items() if key in final]
        yield remark(", ".join(["Computed with sacreBLEU", *search]) + ".")
        yield table(("corpus", "score", "value", "signature"), rows, code=[3])
    if validations := history["validated"]:
        keys = ("step", "weights", "loss", "perplexity", "chrf", "bleu")
        lines = [[*(record[key] for key in keys), "best so far" if record["best"] else ""] for record in validations]
        labels = [LABELS.get(key, key) for key in keys]
        summary = tag("summary", f"{len(validations)} validations (greedy search)")
        yield tag("details", summary, table([*labels, ""], lines))


def make_plots(history: History) -> list[Plot]:
    """The plots of a run that have at least one point."""
    stepped, validations, end = history["stepped"], history.validations, history.last_step
    skipped = [
        (record["step"], f"step {record['step']:,}: {record['why']}")
        for record in history["skipped"]
        if record["step"] <= end
    ]
    losses = (
        Curve.from_records("training, label-smoothed", stepped, "loss"),
        Curve.from_records("validation", validations, "loss"),
    )
    scores = [Curve.from_records(LABELS[key], validations, key) for key in ("chrf", "bleu") if validations]
    norm_title = "Gradient norm (crosses: skipped steps)" if skipped else "Gradient norm"
    speed = Curve.from_records("target tokens/s", stepped, "tokens_per_second")
    plots = (
        Plot("Loss", [curve for curve in losses if curve.points], end),
        Plot("Validation scores", scores, end),
        Plot("Learning rate", [Curve.from_records("rate", stepped, "learning_rate")], end, from_zero=True),
        Plot(norm_title, [Curve.from_records("norm", stepped, "norm")], end, skipped, from_zero=True),
        Plot("Speed", [speed], end, from_zero=True),
    )
    return [plot for plot in plots if plot.curves and all(curve.points for curve in plot.curves)]


def render_samples(history: History) -> Iterator[Html]:
    """Each sample sentence with its translation at every validation."""
    outputs: dict[tuple[str, str], list[tuple[int, Html]]] = defaultdict(list)
    for validated in history.validations:
        for sample in validated["samples"]:
            pieces = mark_matches(sample["reference"], sample["output"])
            marked = "".join(tag("b", piece) if matches else escape_text(piece) for piece, matches in pieces)
            outputs[sample["source"], sample["reference"]].append((validated["step"], Html(marked)))
    if outputs:
        yield remark("Bold text also occurs in the reference, in the same order.")
    for (source, reference), rows in outputs.items():
        yield tag("p", source, class_="source")
        yield remark(f"reference: {reference}")
        yield table(("step", "output"), rows)


def render_data(tree: Record, requested: Record) -> Iterator[Html]:
    """How many pairs were read, dropped and kept; only a remark if the corpus was prepared again since."""
    folder = Path(tree["data"]["prepared_dir"])
    manifest = read_json(folder / MANIFEST)
    if manifest.get("fingerprint") != requested.get("corpus"):
        yield remark(f"The corpus of this run is no longer in {folder}.")
        return
    counts: Mapping[str, int] = manifest["counts"]

    def counts_of(prefix: str) -> dict[str, int]:
        return {key.removeprefix(prefix): count for key, count in counts.items() if key.startswith(prefix) and count}

    reads = {split: counts.get(f"{split}.read", 0) for split in ("train", "validation", "test")}
    dropped = counts_of("dropped.")
    if tree["clean"]["duplicates"] == "drop":
        dropped["duplicates"] = counts.get("duplicates", 0)
    rows = [(f"read, {split}", count, "") for split, count in reads.items() if count]
    rows.append(("lines that could not be read", counts.get("rejected", 0), ""))
    rows += [(f"dropped: {rule}", count, f"{count / reads['train']:.2%}") for rule, count in dropped.items()]
    rows.append(("kept for training", sum(counts_of("rows.").values()), ""))
    rows += [
        (f"normalized: {change.replace('_', ' ')}", count, "") for change, count in counts_of("normalized.").items()
    ]
    for side, tokenizer in manifest["tokenizers"].items():
        tokens_per_word = counts.get(f"tokens.{side}", 0) / max(1, counts.get(f"words.{side}", 0))
        rows.append((f"vocabulary of {manifest[side]}", tokenizer["size"], f"{tokens_per_word:.2f} tokens per word"))
    yield table(("", "", ""), rows)


def render_notes(history: History) -> Iterator[Html]:
    """Choices with their reasons, notes and skipped steps."""
    rows: list[tuple[int, object]] = []
    notes = ((record["step"], record["level"], record["text"]) for record in history["note"])
    for step, level, text in dict.fromkeys(notes):
        rows.append((step, tag("span", text, class_="warning") if level == "warning" else text))
    rows += [(record["step"], f"the last step is now {record['steps']:,}") for record in history["refitted"]]
    for record in history["skipped"]:
        lines = ", ".join(f"{corpus}:{line}" for corpus, line in record["lines"])
        rows.append(
            (record["step"], tag("span", f"skipped ({record['why']}); its batch contained {lines}", class_="warning"))
        )
    rows.sort(key=lambda row: row[0])
    if rows:
        yield table(("step", "event"), rows)


def render_settings(toml: str, tree: Record, requested: Record) -> Iterator[Html]:
    """The settings that the user left open, and the whole file."""
    resolved = [(key, get_by_path(tree, key)) for key, value in requested.items() if value is None]
    if rows := [(key, str(value)) for key, value in resolved if value is not None]:
        yield remark("Not set by the user; measured or derived before the first step:")
        yield table(("key", "value"), rows, code=[0, 1])
    yield tag("details", tag("summary", "All settings: heedful.toml"), tag("div", tag("pre", toml), class_="scroll"))


def get_by_path(tree: Any, path: str) -> Any:
    """{"a": {"b": 1}}, "a.b" -> 1; None if the key does not exist."""
    for key in path.split("."):
        tree = tree.get(key) if isinstance(tree, Mapping) else None
    return tree


def render_versions(run: Path, requested: Record) -> Iterator[Html]:
    """Software versions, the fingerprint of the corpus, and the hashes of the model's files."""
    latest = run / "LATEST"
    state = read_json(run / latest.read_text(encoding="utf-8").strip() / "state.json") if latest.is_file() else {}
    versions = {
        "heedful": read_json(run / "model" / "config.json").get("heedful_version", heedful.__version__),
        **{LABELS.get(name, name): value for name, value in state.get("made_by", {}).items()},
        "Python": platform.python_version(),
        "fingerprint of the corpus": requested.get("corpus", ""),
    }
    yield table(("", ""), list(versions.items()), code=[1])
    files = read_json(run / "model" / MANIFEST).get("files", {})
    if rows := [(name, file["size"], file["sha256"]) for name, file in files.items()]:
        yield table(("file of the model", "bytes", "SHA-256"), rows, code=[2])
