"""report.html: a run as one page, which needs neither a network nor a server, nor even JavaScript.

    write_report(Path("run"))        # what run/ wrote down -> run/report.html

It reads metrics.jsonl, heedful.toml and asked.json of the run, the manifest of its corpus and that of its model; the
same files give the same page. No torch.
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
from heedful.html import Curve, Html, Plot, chart, fill, put, quiet, safe, section, table, tag

REPORT = "report.html"
TEMPLATE = Path(__file__).with_name(REPORT)
MANIFEST = "manifest.json"  # of a model, and of a prepared corpus
NAMES = {"bleu": "BLEU", "chrf": "chrF", "torch": "PyTorch"}
SEARCH = {"beam": "beam of", "length_penalty": "length penalty"}
MANY = 400  # pieces of a sentence, beyond which nobody compares them

Record = Mapping[str, Any]


def write_report(run: Path) -> Path:
    """Write the page of a run, whole or not at all."""
    put(run / REPORT, page(run))
    return run / REPORT


def page(run: Path) -> str:
    """The page of a run."""
    toml, asked = (run / "heedful.toml").read_text(encoding="utf-8"), read(run / "asked.json")
    tree = tomllib.loads(toml)
    told = History.of(records(run / "metrics.jsonl"))
    plots = plots_of(told)
    curves = [tag("div", *map(chart, plots), class_="charts")] if plots else []
    parts = (
        heading(tree, told, run / "model" / MANIFEST),
        section("Scores", scores(told)),
        section("Curves", curves),
        section("The same sentences, validation after validation", samples(told)),
        section("Data", data(tree, asked)),
        section("Choices and notes", notes(told)),
        section("Settings", settings(toml, tree, asked)),
        section("Versions and hashes", made(run, asked)),
    )
    return fill(
        TEMPLATE.read_text(encoding="utf-8"),
        title=f"{tree['source']} → {tree['target']}",
        body=Html("\n".join(parts)),
        data=[plot.plain() for plot in plots],
    )


def read(path: Path) -> Record:
    """What is in a JSON file; nothing where there is none."""
    found: Record = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    return found


# ---------------------------------------------------------------------------------------------------- what happened


def records(path: Path) -> Iterator[Record]:
    """The lines of metrics.jsonl, but for one that is half written."""
    for line in path.read_text(encoding="utf-8", errors="replace").split("\n"):
        try:
            yield json.loads(line)
        except ValueError:
            continue


@dataclass(frozen=True)
class History:
    """What a run told, by the kind of event."""

    kinds: Mapping[str, list[Record]]

    @classmethod
    def of(cls, told: Iterable[Record]) -> "History":
        """A run that rolled back takes steps again: of those only what was said last counts."""
        kinds: dict[str, list[Record]] = defaultdict(list)
        for one in told:
            known = kinds[one["event"]]
            if one["event"] in ("stepped", "validated"):
                while known and replaced(known[-1], one):
                    known.pop()
            known.append(one)
        return cls(kinds)

    def __getitem__(self, kind: str) -> list[Record]:
        return self.kinds.get(kind, [])

    def last(self, kind: str) -> Record:
        """The last of its kind; nothing where there is none."""
        return self[kind][-1] if self[kind] else {}

    @property
    def steps(self) -> int:
        """The last step that is told of."""
        return max((one["step"] for kind in ("stepped", "validated") for one in self[kind]), default=0)

    @property
    def judged(self) -> list[Record]:
        """One validation per step, on the way; at the end other weights are tried too."""
        found: dict[int, Record] = {}
        for one in self["validated"]:
            if one["weights"] == self["validated"][0]["weights"]:
                found.setdefault(one["step"], one)
        return list(found.values())


def replaced(old: Record, new: Record) -> bool:
    """Whether a later record makes an earlier one void."""
    return bool(old["step"] > new["step"]) or all(old.get(key) == new.get(key) for key in ("step", "weights"))


def agreeing(reference: str, output: str) -> list[tuple[str, bool]]:
    """The pieces of an output, words or else characters, and whether the reference has them too in that order."""
    space = " " if " " in reference else ""
    wanted, found = (text.split(" ") if space else list(text) for text in (reference, output))
    if max(len(wanted), len(found)) > MANY:
        return [(output, False)]
    blocks = SequenceMatcher(None, wanted, found, autojunk=False).get_matching_blocks()
    common = {at for block in blocks for at in range(block.b, block.b + block.size)}
    return [(piece + space, at in common) for at, piece in enumerate(found)]


# ---------------------------------------------------------------------------------------------------- the parts


def heading(tree: Record, told: History, model: Path) -> Html:
    """The languages, how it ended, and the numbers one asks for first."""
    began, steps, ended = told.last("began"), told.last("stepped"), told.last("ended")
    final = ended.get("scores", {}).get("validation", {})
    tiles = {f"{NAMES[name]}, validation": f"{one['value']:.1f}" for name, one in final.items()}
    tiles["steps"] = f"{told.steps:,}"
    if steps:
        tiles["passes over the data"] = f"{steps['epoch']:.1f}"
        tiles["time"] = str(timedelta(seconds=int({**steps, **ended}["elapsed"])))
    if began:
        tiles["weights"], tiles["pairs"] = f"{began['parameters']:,}", f"{began['pairs']:,}"
        tiles["on"] = f"{began['device']}, {began['precision']}" + f" × {began['ranks']}" * (began["ranks"] > 1)
    end = "not finished"
    if ended:
        end = f"{ended['why']}; the best weights are: {ended['weights']}"
    if model.is_file():
        end += f"; the model was written on {datetime.fromtimestamp(model.stat().st_mtime):%Y-%m-%d at %H:%M}"
    return tag(
        "header",
        tag("h1", f"{tree['source']} → {tree['target']}"),
        quiet(f"A training run of heedful: {end}."),
        tag("dl", *(tag("div", tag("dt", name), tag("dd", value)) for name, value in tiles.items()), class_="tiles"),
    )


def scores(told: History) -> Iterator[Html]:
    """The final scores with what exactly they measure, and all validations."""
    final = told.last("ended").get("scores", {})
    rows = [
        (corpus, NAMES[name], round(one["value"], 2), one["signature"])
        for corpus, some in final.items()
        if isinstance(some, dict)
        for name, one in some.items()
    ]
    if rows:
        search = [f"{name} {final[key]}" for key, name in SEARCH.items() if key in final]
        yield quiet(", ".join(["By sacreBLEU", *search]) + ".")
        yield table(("corpus", "score", "value", "signature"), rows, code=[3])
    if every := told["validated"]:
        keys = ("step", "weights", "loss", "perplexity", "chrf", "bleu")
        lines = [[*(one[key] for key in keys), "best so far" if one["best"] else ""] for one in every]
        names = [NAMES.get(key, key) for key in keys]
        yield tag("details", tag("summary", f"{len(every)} validations, searched greedily"), table([*names, ""], lines))


def plots_of(told: History) -> list[Plot]:
    """The curves of a run, those that have a point."""
    steps, judged, end = told["stepped"], told.judged, told.steps
    skipped = [(one["step"], f"step {one['step']:,}: {one['why']}") for one in told["skipped"] if one["step"] <= end]
    losses = Curve.of("training, label-smoothed", steps, "loss"), Curve.of("validation", judged, "loss")
    gradient = "Gradient norm; crossed: skipped" if skipped else "Gradient norm"
    plots = (
        Plot("Loss", [one for one in losses if one.points], end),
        Plot("Validation scores", [Curve.of(NAMES[key], judged, key) for key in ("chrf", "bleu") if judged], end),
        Plot("Learning rate", [Curve.of("rate", steps, "learning_rate")], end, from_zero=True),
        Plot(gradient, [Curve.of("norm", steps, "norm")], end, skipped, from_zero=True),
        Plot("Speed", [Curve.of("target tokens/s", steps, "tokens_per_second")], end, from_zero=True),
    )
    return [plot for plot in plots if plot.curves and all(curve.points for curve in plot.curves)]


def samples(told: History) -> Iterator[Html]:
    """Every sample with its outputs, step by step."""
    outputs: dict[tuple[str, str], list[tuple[int, Html]]] = defaultdict(list)
    for validated in told.judged:
        for one in validated["samples"]:
            pieces = agreeing(one["reference"], one["output"])
            marked = "".join(tag("b", piece) if agrees else safe(piece) for piece, agrees in pieces)
            outputs[one["source"], one["reference"]].append((validated["step"], Html(marked)))
    if outputs:
        yield quiet("Bold is what the reference says too, in that order.")
    for (source, reference), rows in outputs.items():
        yield tag("p", source, class_="source")
        yield quiet(f"reference: {reference}")
        yield table(("step", "output"), rows)


def data(tree: Record, asked: Record) -> Iterator[Html]:
    """What became of the pairs; a corpus prepared anew since then says nothing about this run."""
    folder = Path(tree["data"]["prepared_dir"])
    manifest = read(folder / MANIFEST)
    if manifest.get("fingerprint") != asked.get("corpus"):
        yield quiet(f"What this run learned from is not in {folder} any more.")
        return
    counts: Mapping[str, int] = manifest["counts"]

    def under(start: str) -> dict[str, int]:
        return {key.removeprefix(start): count for key, count in counts.items() if key.startswith(start) and count}

    reads = {split: counts.get(f"{split}.read", 0) for split in ("train", "validation", "test")}
    left_out = under("dropped.")
    if tree["clean"]["duplicates"] == "drop":
        left_out["duplicates"] = counts.get("duplicates", 0)
    rows = [(f"read, {split}", count, "") for split, count in reads.items() if count]
    rows.append(("lines that could not be read", counts.get("rejected", 0), ""))
    rows += [(f"left out: {rule}", count, f"{count / reads['train']:.2%}") for rule, count in left_out.items()]
    rows.append(("kept to learn from", sum(under("rows.").values()), ""))
    rows += [(f"normalized: {change.replace('_', ' ')}", count, "") for change, count in under("normalized.").items()]
    for side, tokenizer in manifest["tokenizers"].items():
        each = counts.get(f"tokens.{side}", 0) / max(1, counts.get(f"words.{side}", 0))
        rows.append((f"vocabulary of {manifest[side]}", tokenizer["size"], f"{each:.2f} tokens per word"))
    yield table(("", "", ""), rows)


def notes(told: History) -> Iterator[Html]:
    """What was chosen and why, what was said, what was skipped."""
    rows: list[tuple[int, object]] = []
    for step, level, text in dict.fromkeys((one["step"], one["level"], one["text"]) for one in told["note"]):
        rows.append((step, tag("span", text, class_="warning") if level == "warning" else text))
    rows += [(one["step"], f"from here on the last step is {one['steps']:,}") for one in told["refitted"]]
    for one in told["skipped"]:
        lines = ", ".join(f"{corpus}:{line}" for corpus, line in one["lines"])
        rows.append((one["step"], tag("span", f"skipped ({one['why']}); it had {lines}", class_="warning")))
    rows.sort(key=lambda row: row[0])
    if rows:
        yield table(("step", "what"), rows)


def settings(toml: str, tree: Record, asked: Record) -> Iterator[Html]:
    """What was left open and then settled, and the whole file."""
    found = [(key, at(tree, key)) for key, value in asked.items() if value is None]
    if rows := [(key, str(value)) for key, value in found if value is not None]:
        yield quiet("Left open in the settings, and measured or worked out before the first step:")
        yield table(("key", "value"), rows, code=[0, 1])
    yield tag("details", tag("summary", "All settings: heedful.toml"), tag("div", tag("pre", toml), class_="scroll"))


def at(tree: Any, path: str) -> Any:
    """{"a": {"b": 1}}, "a.b" -> 1; None where there is nothing."""
    for key in path.split("."):
        tree = tree.get(key) if isinstance(tree, Mapping) else None
    return tree


def made(run: Path, asked: Record) -> Iterator[Html]:
    """Versions as the run wrote them down, the corpus's fingerprint, and the hashes of the model's files."""
    latest = run / "LATEST"
    state = read(run / latest.read_text(encoding="utf-8").strip() / "state.json") if latest.is_file() else {}
    found = {
        "heedful": read(run / "model" / "config.json").get("heedful_version", heedful.__version__),
        **{NAMES.get(name, name): value for name, value in state.get("made_by", {}).items()},
        "Python": platform.python_version(),
        "fingerprint of the corpus": asked.get("corpus", ""),
    }
    yield table(("", ""), list(found.items()), code=[1])
    files = read(run / "model" / MANIFEST).get("files", {})
    if rows := [(name, one["size"], one["sha256"]) for name, one in files.items()]:
        yield table(("file of the model", "bytes", "SHA-256"), rows, code=[2])
