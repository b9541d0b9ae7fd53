"""report.html: one page about a run, which needs no network and no server.

    write_report(Path("run"))        # reads the files of run/, writes run/report.html

It reads metrics.jsonl, snapshots.jsonl, heedful.toml and requested.json of the run, and the manifests of its corpus and
its model. The same files always give the same page. torch is not needed.

The page is written in English and can be read without JavaScript. Its script adds the film of the training, and
switches to another language: each text that it translates has the attributes `data-t` (a key of words.json) and
`data-values`.
"""

import json
import platform
import shlex
import tomllib
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any

import heedful
from heedful.html import (
    VIEWER,
    Curve,
    Html,
    Plot,
    draw_chart,
    escape_text,
    fill_template,
    join_scripts,
    remark,
    section,
    table,
    tag,
    write_html,
)
from heedful.text.normalize import escape_invisible
from heedful.trace import (
    SNAPSHOTS,
    Array,
    Blob,
    Snapshot,
    TraceDocument,
    dump_trace,
    read_snapshots,
    weights_blob,
)
from heedful.training.clock import format_duration
from heedful.training.history import History, Record
from heedful.training.usability import UsabilityFigures, suggest_seconds, usability_level, usability_phrases
from heedful.training.words import Phrase, load_words

REPORT = "report.html"
TEMPLATE = Path(__file__).with_name(REPORT)
SCRIPTS = (
    *(VIEWER / name for name in ("data.js", "state.js", "draw.js", "film.js")),
    Path(__file__).with_name("report.js"),
)  # concatenated in this order
FILM_WORDS = ("film", "training-step", "sentence", "play", "map")  # of the viewer's glossary
MAX_FILM_FRAMES = 24
MANIFEST = "manifest.json"  # of a model, and of a prepared corpus
LABELS = {
    "bleu": "BLEU", "chrf": "chrF", "torch": "PyTorch", "perplexity": "perplexity per token",
    "accuracy": "accuracy", "f1": "macro F1", "word_perplexity": "perplexity per word", "bits": "bits per character",
}  # fmt: skip
SEARCH_LABELS = (("beam", "beam-size"), ("length_penalty", "length-penalty"))
NEXT_COMMANDS = {"next-translate": "translate", "next-serve": "serve"}
MAX_COMPARED_PIECES = 400  # longer sentences are not compared


def write_report(run: Path) -> Path:
    """Write run/report.html atomically and return its path."""
    write_html(run / REPORT, render_report(run))
    return run / REPORT


def render_report(run: Path) -> str:
    toml, requested = (run / "heedful.toml").read_text(encoding="utf-8"), read_json(run / "requested.json")
    tree = tomllib.loads(toml)
    history = History.load(run)
    plots = make_plots(history)
    curves = [tag("div", *map(draw_chart, plots), class_="charts")] if plots else []
    parts = (
        render_heading(tree, history, run / "model" / MANIFEST),
        section(say("next"), render_commands(run, history)),
        section(say("scores"), render_scores(history)),
        section(say("curves"), curves),
        tag("div", id="film-place"),
        section(say("extremes"), render_extremes(tree, history)),
        section(say("samples"), render_samples(history)),
        section(say("data"), render_data(tree, requested)),
        section(say("notes"), render_notes(history)),
        section(say("settings"), render_settings(toml, tree, requested)),
        section(say("versions"), render_versions(run, requested)),
    )
    return fill_template(
        TEMPLATE.read_text(encoding="utf-8"),
        title=f"{tree['source']} → {tree['target']}",
        body=Html("\n".join(parts)),
        data={"charts": [plot.to_json() for plot in plots], "words": page_words(), **load_film(run)},
        code=join_scripts(SCRIPTS),
    )


def read_json(path: Path) -> Record:
    """The content of a JSON file; empty if the file does not exist."""
    content: Record = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    return content


# ---------------------------------------------------------------------------------------------------- text


def say(key: str, *values: str) -> Html:
    """A text of words.json in English, which the page's script can translate."""
    shown = tuple(map(escape_invisible, values))
    attributes = {"data_values": json.dumps(shown)} if shown else {}
    return tag("span", Phrase(key, shown).english, data_t=key, **attributes)


def page_words() -> dict[str, dict[str, str]]:
    """Language -> key -> text, with those of the film."""
    film_words = read_json(VIEWER / "glossary.json")
    return {
        language: {**{key: film_words[language][key] for key in FILM_WORDS}, **words}
        for language, words in load_words().items()
    }


def mark_matches(reference: str, output: str) -> list[tuple[str, bool]]:
    """The words of an output (characters, if the reference has no spaces), and whether the reference contains them."""
    space = " " if " " in reference else ""
    expected, actual = (text.split(" ") if space else list(text) for text in (reference, output))
    if max(len(expected), len(actual)) > MAX_COMPARED_PIECES:
        return [(output, False)]
    blocks = SequenceMatcher(None, expected, actual, autojunk=False).get_matching_blocks()
    matching = {index for block in blocks for index in range(block.b, block.b + block.size)}
    return [(piece + space, index in matching) for index, piece in enumerate(actual)]


# ---------------------------------------------------------------------------------------------------- the film


def load_film(run: Path) -> dict[str, Any]:
    """The snapshots of the run with the attention of the head that aligns best, at most MAX_FILM_FRAMES of them."""
    series = read_snapshots(run / SNAPSHOTS)
    if series is None:
        return {}
    method = read_json(run / "model" / "training_statistics.json").get("alignment") or {}

    def keep_one_head(blob: Blob | None) -> Blob | None:
        return blob and weights_blob(select_head(blob.array(), method.get("layer"), method.get("head")))

    def thin(frame: Snapshot) -> Snapshot:
        takes = (take.model_copy(update={"attention": keep_one_head(take.attention)}) for take in frame.takes)
        return frame.model_copy(update={"takes": tuple(takes)})

    frames = tuple(map(thin, choose_evenly(series.frames, MAX_FILM_FRAMES)))
    trace = TraceDocument(film=series.model_copy(update={"frames": frames}))
    return {
        "film": json.loads(dump_trace(trace))["film"],
        "reading": {"layer": 0, "head": 0, "step": method.get("step")},
    }


def select_head(attention: Array, layer: int | None, head: int | None) -> Array:
    """[L, H, T, S] -> [1, 1, T, S]: one head, or the mean of those that are left open or were not stored."""
    layers = attention if layer is None else attention[layer : layer + 1]
    heads = layers if head is None or head >= layers.shape[1] else layers[:, head : head + 1]
    mean: Array = heads.mean((0, 1), keepdims=True)
    return mean


def choose_evenly(frames: Sequence[Snapshot], count: int) -> list[Snapshot]:
    """At most `count` items, evenly spaced, with the first and the last."""
    if len(frames) <= count:
        return list(frames)
    return [frames[round(index * (len(frames) - 1) / (count - 1))] for index in range(count)]


# ---------------------------------------------------------------------------------------------------- the sections


def render_heading(tree: Record, history: History, manifest: Path) -> Html:
    """The languages, whether the model is usable, how the run ended, and the main numbers."""
    began, stepped, ended = history.last("began"), history.last("stepped"), history.last("ended")
    validation_scores = ended.get("scores", {}).get("validation", {})
    tiles = {say("tile-validation", LABELS[name]): f"{score['value']:.1f}" for name, score in validation_scores.items()}
    tiles[say("steps")] = f"{history.last_step:,}"
    if stepped:
        tiles[say("passes")] = f"{stepped['epoch']:.1f}"
        tiles[say("time")] = str(timedelta(seconds=int({**stepped, **ended}["elapsed"])))
    if began:
        tiles[say("weights")], tiles[say("pairs")] = f"{began['parameters']:,}", f"{began['pairs']:,}"
        tiles[say("device")] = f"{began['device']}, {began['precision']}" + f" × {began['ranks']}" * (
            began["ranks"] > 1
        )
    status: list[object] = [": ", say("not-finished")]
    if ended:
        status = [": ", say_reason(ended["why"]), "; ", say("best-weights", ended["weights"])]
    if manifest.is_file():
        written = datetime.fromtimestamp(manifest.stat().st_mtime)
        status += ["; ", say("written-on", f"{written:%Y-%m-%d %H:%M}")]
    return tag(
        "header",
        tag("div", tag("h1", f"{tree['source']} → {tree['target']}"), tag("div", id="languages"), class_="title"),
        *render_usability(history),
        remark(say("a-run"), *status, "."),
        tag("dl", *(tag("div", tag("dt", name), tag("dd", value)) for name, value in tiles.items()), class_="tiles"),
    )


def read_figures(history: History) -> UsabilityFigures | None:
    """The figures that the run recorded at its end; None if it has not ended, or recorded other ones."""
    figures = history.last("ended").get("figures") or {}
    return UsabilityFigures(**figures) if set(figures) == set(UsabilityFigures.__slots__) else None


def render_usability(history: History) -> Iterator[Html]:
    """Good: BLEU 55.2 (53.8 to 56.6) on 1,000 validation sentences."""
    if figures := read_figures(history):
        level, *reasons = usability_phrases(figures)
        parts: list[object] = [tag("strong", say(level.key), ":"), " "]
        for reason in reasons:
            parts += [say(reason.key, *reason.values), "; "]
        yield tag("p", *parts[:-1], ".", class_=f"usability {level.key}")


def say_reason(why: str) -> Html:
    """Why the run ended; a reason that is not in words.json stays in English."""
    key = f"why: {why}"
    return say(key) if key in load_words()["en"] else tag("span", why, lang="en")


def render_commands(run: Path, history: History) -> Iterator[Html]:
    """What to type next: first what makes the model usable, if it is not yet."""
    if ended := history.last("ended"):
        folder = run.resolve()
        commands = {key: ["heedful", verb, str(folder)] for key, verb in NEXT_COMMANDS.items()}
        commands = advise_command(folder, read_figures(history), ended["elapsed"]) | commands
        yield table(("", ""), [(say(key), shlex.join(words)) for key, words in commands.items()], code=[1])


def advise_command(run: Path, figures: UsabilityFigures | None, elapsed_seconds: float) -> dict[str, list[str]]:
    """A key of words.json and the command that helps most to make the model usable; empty if it is."""
    level = usability_level(figures) if figures else ""
    if figures and level == "not-yet":
        duration = format_duration(suggest_seconds(figures, elapsed_seconds))
        return {"next-continue": ["heedful", "train", str(run), "--time", duration]}
    return {"next-check": ["heedful", "check", str(run / "heedful.toml")]} if level == "not-usable" else {}


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
        search = [(", ", say(key, str(final[name]))) for name, key in SEARCH_LABELS if name in final]
        yield remark(say("computed-with"), *(part for parts in search for part in parts), ".")
        yield table([say(key) for key in ("corpus", "score", "value", "signature")], rows, code=[3])
    if validations := history["validated"]:
        keys = ("step", "weights", "loss", "perplexity", *score_keys(validations))
        best = say("best-so-far")
        lines = [[*(record[key] for key in keys), best if record["best"] else ""] for record in validations]
        labels = [LABELS[key] if key in LABELS else say(key) for key in keys]
        summary = tag("summary", say("num-validations", f"{len(validations):,}"))
        yield tag("details", summary, table([*labels, ""], lines))


def score_keys(validations: Sequence[Record]) -> list[str]:
    """The scores that the validations of a run have."""
    return [key for key in ("chrf", "bleu", "accuracy") if validations and validations[0].get(key) is not None]


def make_plots(history: History) -> list[Plot]:
    """The plots of a run that have at least one point; their names are texts of words.json."""
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
    scores = [Curve.from_records(LABELS[key], validations, key) for key in score_keys(validations)]
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


def render_extremes(tree: Record, history: History) -> Iterator[Html]:
    """The validation sentences with the highest and with the lowest chrF."""
    ended = history.last("ended")
    if not ended.get("best"):
        return
    yield remark(say("extremes-note", str(len(ended["best"]))))
    for key in ("best", "worst"):
        yield tag("h3", say(key))
        rows = [
            (
                round(sample["chrf"]),
                tag(
                    "dl",
                    *render_side("source", sample["source"], tree["source"]),
                    *render_side("reference", sample["reference"], tree["target"]),
                    *render_side("output", mark_output(sample), tree["target"]),
                    class_="sides",
                ),
            )
            for sample in ended[key]
        ]
        yield table(("chrF", ""), rows)


def render_side(key: str, text: str, language: str) -> tuple[Html, Html]:
    return tag("dt", say(key)), tag("dd", text, lang=language, dir="auto")


def mark_output(sample: Record) -> Html:
    """The output, with the parts that match the reference in bold."""
    pieces = mark_matches(sample["reference"], sample["output"])
    return Html("".join(tag("b", piece) if matches else escape_text(piece) for piece, matches in pieces))


def render_samples(history: History) -> Iterator[Html]:
    """Each sample sentence with its translation at every validation."""
    outputs: dict[tuple[str, str], list[tuple[int, Html]]] = defaultdict(list)
    for validated in history.validations:
        for sample in validated["samples"]:
            outputs[sample["source"], sample["reference"]].append((validated["step"], mark_output(sample)))
    if outputs:
        yield remark(say("samples-note"))
    for (source, reference), rows in outputs.items():
        yield tag("p", source, class_="source")
        yield remark(say("reference"), ": ", reference)
        yield table((say("step"), say("output")), rows)


def render_data(tree: Record, requested: Record) -> Iterator[Html]:
    """How many pairs were read, dropped and kept; only a remark if the corpus was prepared again since."""
    folder = Path(tree["data"]["prepared_dir"])
    manifest = read_json(folder / MANIFEST)
    if manifest.get("fingerprint") != requested.get("corpus"):
        yield remark(say("corpus-gone", str(folder)))
        return
    counts: Mapping[str, int] = manifest["counts"]

    def counts_of(prefix: str) -> dict[str, int]:
        return {key.removeprefix(prefix): count for key, count in counts.items() if key.startswith(prefix) and count}

    reads = {split: counts.get(f"{split}.read", 0) for split in ("train", "validation", "test")}
    dropped = counts_of("dropped.")
    if tree["clean"]["duplicates"] == "drop":
        dropped["duplicates"] = counts.get("duplicates", 0)
    rows: list[tuple[Html, int, object]] = [
        (say(f"read-{split}"), count, "") for split, count in reads.items() if count
    ]
    rows.append((say("unreadable"), counts.get("rejected", 0), ""))
    rows += [(say("dropped", rule), count, f"{count / reads['train']:.2%}") for rule, count in dropped.items()]
    rows.append((say("kept"), sum(counts_of("rows.").values()), ""))
    rows += [
        (say("normalized", change.replace("_", " ")), count, "") for change, count in counts_of("normalized.").items()
    ]
    for side, tokenizer in manifest["tokenizers"].items():
        tokens_per_word = counts.get(f"tokens.{side}", 0) / max(1, counts.get(f"words.{side}", 0))
        name = say("vocabulary-of", manifest[side])
        rows.append((name, tokenizer["size"], say("tokens-per-word", f"{tokens_per_word:.2f}")))
    yield table(("", "", ""), rows)


def render_notes(history: History) -> Iterator[Html]:
    """Choices with their reasons, notes and skipped steps."""
    rows: list[tuple[int, object]] = []
    notes = ((record["step"], record["level"], record["text"]) for record in history["note"])
    for step, level, text in dict.fromkeys(notes):
        rows.append((step, tag("span", text, class_="warning" if level == "warning" else "note", lang="en")))
    rows += [(record["step"], say("moved-end", f"{record['steps']:,}")) for record in history["refitted"]]
    for record in history["skipped"]:
        lines = ", ".join(f"{corpus}:{line}" for corpus, line in record["lines"])
        rows.append((record["step"], tag("span", say("skipped-step", record["why"], lines), class_="warning")))
    rows.sort(key=lambda row: row[0])
    if rows:
        yield table((say("step"), say("event")), rows)


def render_settings(toml: str, tree: Record, requested: Record) -> Iterator[Html]:
    """The settings that the user left open, and the whole file."""
    resolved = [(key, get_by_path(tree, key)) for key, value in requested.items() if value is None]
    if rows := [(key, str(value)) for key, value in resolved if value is not None]:
        yield remark(say("not-set"))
        yield table((say("setting"), say("value")), rows, code=[0, 1])
    yield tag("details", tag("summary", say("all-settings")), tag("div", tag("pre", toml), class_="scroll"))


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
        say("fingerprint"): requested.get("corpus", ""),
    }
    yield table(("", ""), list(versions.items()), code=[1])
    files = read_json(run / "model" / MANIFEST).get("files", {})
    if rows := [(name, file["size"], file["sha256"]) for name, file in files.items()]:
        yield table((say("model-file"), say("bytes"), "SHA-256"), rows, code=[2])
