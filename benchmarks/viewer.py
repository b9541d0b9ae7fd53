"""How large is an inspection page, how fast is it in a real browser, and does its model compute what PyTorch computes?

A Transformer of 6 + 6 layers with 8 heads, width 512 and random weights; a source and a forced answer of 25 tokens,
beam of 5. Then 20 sentences in one page, and a sentence of 60 tokens that is scrubbed from end to end, measured by the
browser (CPU time of script, style and layout) in headless Chromium, from a file, without a network.

Then live pages, with weights as int8. A transformer-tiny that was trained on Multi30k for 20 minutes translates 1,000
captions of the validation set that are typed into the page, with greedy search and with a beam of 5; the bundled models
pt-en and pt-en-gru translate 200 sentences. PyTorch, with the same dequantized weights, finds the same translation of
each, or one that is as probable (log p within 1e-4 per token). The same for models that are trained for this purpose,
two and a half minutes each: an LSTM with every score, a GRU with input feeding, a bottleneck and hard attention. 100
times each, a beginning is forced, a head is silenced, and a cell is edited, through the address of the page. The loss
of int8 is measured on test2016. Without the corpora (HEEDFUL_DATA), pt-en and its test set take the place of
transformer-tiny. Under node, the tokenizer of the page splits 10,000 lines in eight scripts as SentencePiece does.

Claims: maps of all three kinds under 120 kB; the search tree under 100 kB; vectors of all scores under 1.5 MB and only
on request; our script and style under 200 kB; 20 sentences open in under a second; a frame costs at most 8 ms, in the
tabs Next word and Map. A live page has at most 1.4 bytes per weight and 0.6 MB more; it answers within 1.5 s of being
opened, then in a median of 150 ms (greedy) and 500 ms (beam 5). While it computes, events wait at most 50 ms; a cell
that is dragged is drawn again within 100 ms. No answer differs from PyTorch, with or without changes, and no token from
SentencePiece; int8 costs at most 0.3 BLEU.

    pip install playwright            (and Debian's chromium, or another one)
    python benchmarks/viewer.py [--quick] [--runs DIR]

--quick: fewer frames, the bundled models and one that is trained for 20 steps, 20 sentences per model, 5 changes of
each kind, 500 lines. With --runs, models stay in DIR, and are not trained again.
"""

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from pathlib import Path
from random import Random
from typing import Any
from urllib.parse import quote

import torch

from report import DATA, header, read_lines, skip, verdict

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from heedful import config, samples
from heedful.build import build
from heedful.bundle import read_float_weights
from heedful.engines.base import SearchOptions
from heedful.inspection.api import Page, inspect
from heedful.inspection.live import describe_tokenizer, unpack_weights
from heedful.inspection.page import load_viewer
from heedful.inspection.record import InspectedModel, InspectedSource, record_sentence
from heedful.metrics import score
from heedful.nn.attention import SCORES
from heedful.samples import validation_lines
from heedful.search import Beam
from heedful.text.normalize import normalize
from heedful.text.tokenizer import train as train_tokenizer
from heedful.trace import Sentence, TraceDocument, dump_trace
from heedful.translation.loading import load
from heedful.translation.translator import TranslationOptions
from support.live_models import NODE, ChangedRows, attention_modules, mixed_lines, run_engine

Claim = tuple[str, float, float]
BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
BOS, EOS, WORDS = 2, 3, 8000
LAYER = {"kind": "transformer", "layers": 6, "heads": 8, "feedforward_size": 2048, "dropout": 0.0}


def random_model() -> InspectedModel:
    """A model of base size with random weights."""
    torch.manual_seed(1)
    settings = {"width": 512, "positions": "sinusoidal", "scale_embeddings": True, "encoder": LAYER, "decoder": LAYER}
    model = build(config.ModelSettings.model_validate(settings), WORDS, WORDS).eval()
    with torch.no_grad():
        for name, weight in model.named_parameters():  # heads of a trained model look sharply
            if weight.dim() > 1 and ("project" in name or "query" in name or "memory" in name):
                weight.mul_(1.7)

    def pieces(ids: Any) -> list[str]:
        return [f"\u2581w{token}" if token != EOS else "</s>" for token in ids]

    return InspectedModel(
        model.encoder, model.decoder, BOS, EOS, pieces, pieces, lambda ids: " ".join(f"w{token}" for token in ids)
    )


def trace_sentence(model: InspectedModel, tokens: int, seed: int, **options: Any) -> Sentence:
    """A sentence and a forced answer of this many tokens."""
    torch.manual_seed(seed)
    source, target = (torch.randint(4, WORDS, (tokens - 1,)).tolist() for _ in range(2))
    text = " ".join(f"w{token}" for token in source)
    inspected = InspectedSource((*source, EOS), text, max_length=tokens)
    return record_sentence(model, inspected, Beam(5), forced_target=target, importance=False, **options)


def size(part: Any) -> float:
    """Kilobytes in the page."""
    return len(dump_trace(TraceDocument(sentences=(part,)))) / 1000


def sizes(model: InspectedModel) -> dict[str, float]:
    sentence = trace_sentence(model, 25, 1, vectors=("encoder", "cross", "decoder"))
    maps = sum(len(blob.data) for blob in sentence.attention.values()) / 1000
    cross = sum(len(blob) for layer in sentence.vectors["cross"] for blob in blob_data(layer)) / 1000
    all_vectors = (
        sum(len(blob) for layers in sentence.vectors.values() for layer in layers for blob in blob_data(layer)) / 1000
    )
    bare = sentence.model_copy(update={"vectors": {}, "attention": {}})
    tree = size(bare) - size(bare.model_copy(update={"tree": None}))
    script, style, texts = load_viewer()
    return {
        "maps of all three kinds": maps,
        "search tree": tree,
        "vectors of cross-attention": cross,
        "vectors of all three kinds": all_vectors,
        "script and style": (len(script.encode()) + len(style.encode())) / 1000,
        "glossary": len(json.dumps(texts, ensure_ascii=False).encode()) / 1000,
    }


def blob_data(layer: Any) -> list[str]:
    parts = (layer.queries, layer.keys, layer.values, layer.scores, layer.energy, layer.moved)
    return [part.data for part in parts if part is not None]


def measure_in_browser(model: InspectedModel, folder: Path, rounds: int) -> tuple[float, dict[str, list[float]]]:
    """Milliseconds to open 20 sentences, and of script, style and layout per frame by tab, in each round."""
    from playwright.sync_api import sync_playwright

    many = Page(
        TraceDocument(title="many", sentences=tuple(trace_sentence(model, 25, seed) for seed in range(20)))
    ).save(folder / "many.html")
    long = Page(TraceDocument(title="long", sentences=(trace_sentence(model, 60, 1),))).save(folder / "long.html")
    print(
        f"20 sentences of 25 tokens: {many.stat().st_size / 1e6:.1f} MB; one of 60: {long.stat().st_size / 1e6:.1f} MB"
    )
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=BROWSER, args=["--no-sandbox", "--disable-gpu"])
        times = []
        for _ in range(rounds):
            tab = browser.new_context(viewport={"width": 1280, "height": 800}, offline=True).new_page()
            tab.goto(many.as_uri())
            tab.wait_for_selector("html[data-ready]")
            times.append(float(tab.get_attribute("html", "data-ready") or 0))
            tab.close()
        tab = browser.new_context(viewport={"width": 1280, "height": 800}, offline=True).new_page()
        tab.goto(long.as_uri())
        tab.wait_for_selector("html[data-ready]")
        session = tab.context.new_cdp_session(tab)
        session.send("Performance.enable", {"timeDomain": "threadTicks"})  # CPU time: other programs do not count

        def spent_milliseconds() -> float:
            metrics = {entry["name"]: entry["value"] for entry in session.send("Performance.getMetrics")["metrics"]}
            return 1000 * sum(
                float(metrics[name]) for name in ("ScriptDuration", "LayoutDuration", "RecalcStyleDuration")
            )

        frames: dict[str, list[float]] = {"next": [], "map": []}
        for name in list(frames) * rounds:
            tab.click(f"#tab-{name}")
            tab.wait_for_selector(f"[data-tab={name}]")
            before = spent_milliseconds()
            tab.evaluate(SCRUB)
            frames[name].append((spent_milliseconds() - before) / 60)
        browser.close()
    return statistics.median(times), frames


SCRUB = """async () => {
    const slider = document.querySelector("#stage input[type=range]");
    for (let step = 0; step < 60; step++) {
        slider.value = step;
        slider.dispatchEvent(new Event("input"));
        await new Promise(requestAnimationFrame);
        await new Promise(requestAnimationFrame);
    }
}"""


# ------------------------------------------------------------------------------------------------------ a live page

SAMPLE, RECURRENT_SAMPLE = "pt-en", "pt-en-gru"
WHOLE = TranslationOptions(split_sentences=False)
SEARCHES = {"greedy": SearchOptions(beam=1), "beam": SearchOptions(beam=5)}
# Do something in the page -> its answer, log p as it is shown, and the milliseconds until all panels show them.
RUN = """async ([act, value]) => {
    const acts = {
        choose: () => document.querySelector(`#what-if [data-key=${value}]`).click(),
        visit: () => { location.hash = value; },
        type: () => {
            const input = document.querySelector("[data-key=live-text]");
            input.value = value;
            input.dispatchEvent(new Event("input"));
            document.querySelector(".live").requestSubmit();
        },
    };
    const began = performance.now(), shown = document.querySelector(".live output").textContent;
    document.querySelector("#stage").dataset.old = "1";
    acts[act]();
    const isWaiting = () => document.querySelector("#stage[data-old]") && !document.querySelector(".live .problem");
    while (isWaiting()) await new Promise((next) => setTimeout(next, 1));
    if (act === "visit") for (let until = 0; until < 2;) {  // the recording, then the answer
        await new Promise((next) => setTimeout(next, 20));
        const isDone = document.querySelector(".live .problem") || document.querySelector(".outcome .number");
        until = isDone ? until + 1 : 0;
    }
    const logp = document.querySelector(".outcome .number")?.textContent.split(" ").at(-1).replace("\u2212", "-");
    return [document.querySelector("#stage .answer").textContent, performance.now() - began, Number(logp)];
}"""
# The longest time that an event waits while the page computes: a task of no length is asked for again and again.
EVENTS = """async (text) => {
    const input = document.querySelector("[data-key=live-text]"), gaps = [];
    input.value = text;
    input.dispatchEvent(new Event("input"));
    document.querySelector("#stage").dataset.old = "1";
    document.querySelector(".live").requestSubmit();
    for (let before = performance.now(); document.querySelector("#stage[data-old]");) {
        const channel = new MessageChannel();
        await new Promise((next) => { channel.port1.onmessage = next; channel.port2.postMessage(0); });
        const now = performance.now();
        gaps.push(now - before);
        before = now;
    }
    return Math.max(...gaps.slice(0, -1));  // the last one is the answer, which is drawn
}"""
# Milliseconds from each movement of a pointer that drags a cell to the frame that shows its new weight.
DRAG = """async () => {
    const board = document.querySelector("[data-key=map]"), times = [];
    const { left, top, width, height } = document.querySelector(".cell-marker").getBoundingClientRect();
    const at = (by) => ({ bubbles: true, button: 0, clientX: left + width / 2, clientY: top + height / 2 - by });
    const point = (type, by) => board.dispatchEvent(new PointerEvent(type, at(by)));
    const frame = () => new Promise(requestAnimationFrame);
    const weight = () => document.querySelector("#cell-readout [data-weight]").dataset.weight;
    const direction = weight() > 0.5 ? -1 : 1;
    point("pointerdown", 0);
    for (let by = 8; by <= 48; by += 4) {
        const before = weight(), began = performance.now();
        point("pointermove", direction * by);
        do await frame(); while (weight() === before && performance.now() - began < 1000);
        times.push(performance.now() - began);
        await new Promise((next) => setTimeout(next, 60));
    }
    point("pointerup", direction * 48);
    return times;
}"""


@contextmanager
def opened(page: Path) -> Iterator[Any]:
    """The page in a browser without a network."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=BROWSER, args=["--no-sandbox", "--disable-gpu"])
        tab = browser.new_context(viewport={"width": 1280, "height": 800}, offline=True).new_page()
        tab.goto(page.as_uri())
        tab.wait_for_selector("html[data-ready]")
        yield tab
        browser.close()


def live_page(translator: Any, folder: Path, sentence: str) -> Path:
    return inspect(translator, sentence, live="int8", importance=False, evidence=False).save(folder / "live.html")


def use_page_weights(translator: Any) -> None:
    """The weights with which the page computes."""
    weights = unpack_weights(read_float_weights(translator.bundle), "int8")
    translator.engine.model.load_state_dict({name: torch.from_numpy(array) for name, array in weights.items()})


def measure_live(translator: Any, folder: Path, sentences: Sequence[str]) -> dict[str, Any]:
    """What a live page answers and how fast, and how many answers differ from PyTorch's with the same weights."""
    page = live_page(translator, folder, sentences[0])
    answers: dict[str, list[tuple[str, float, float]]] = {}
    with opened(page) as tab:
        tab.evaluate(RUN, ["type", sentences[0]])
        first_answer = tab.evaluate("performance.now()")
        for search in SEARCHES:
            tab.evaluate(RUN, ["choose", search])
            answers[search] = [tab.evaluate(RUN, ["type", sentence]) for sentence in sentences]
        longest = max(sentences, key=len)
        events = max(tab.evaluate(EVENTS, longest) for _ in range(5))
        tab.evaluate(RUN, ["choose", "greedy"])
        tab.click("#tab-map")
        tab.wait_for_selector("[data-tab=map]")
        drags = tab.evaluate(DRAG) if tab.query_selector(".cell-marker") else []
    use_page_weights(translator)
    differences = sum(
        count_differences(translator, sentences, [text for text, *_ in answers[search]], options)
        for search, options in SEARCHES.items()
    )
    return {
        "first": first_answer,
        "differences": differences,
        "bytes": (page.stat().st_size - 0.6e6) / translator.bundle.description.parameters,
        "events": events,
        "drag": max(drags, default=0.0),
        **{search: statistics.median(milliseconds for _, milliseconds, _ in answers[search]) for search in SEARCHES},
    }


# --------------------------------------------------------------------------------------------------------- changes


@dataclass(frozen=True)
class Change:
    """A change of the model, for one sentence; counted from 0."""

    begin: tuple[int, ...] = ()  # tokens
    silenced: tuple[str, int, int] | None = None  # place, layer, head
    edit: tuple[int, int, int, int, float] | None = None  # layer, head, step, slot, weight of cross-attention

    def address(self, names: Sequence[str]) -> str:
        parts = [f"force={quote(json.dumps(names))}"] if names else []
        if self.silenced:
            place, layer, head = self.silenced
            parts.append(f"silence={place}-{layer + 1}.{head + 1}")
        if self.edit:
            layer, head, step, slot, weight = self.edit
            parts.append(f"edit=cross-{layer + 1}.{head + 1}-{step + 1}-{slot + 1}-{round(100 * weight)}")
        return "&".join(parts)


def random_change(kind: str, random: Random, shape: tuple[int, int], ids: Sequence[int], num_slots: int) -> Change:
    layer, head = (random.randrange(size) for size in shape)
    if kind == "force":
        return Change(begin=(*ids[: random.randrange(len(ids))], random.randrange(300, 4000)))
    if kind == "silence":
        return Change(silenced=("cross", layer, head))
    return Change(
        edit=(layer, head, random.randrange(len(ids)), random.randrange(num_slots), random.randint(0, 10) / 10)
    )


def translate_changed(translator: Any, source: Any, change: Change) -> Any:
    """PyTorch's hypothesis for a source, by greedy search, with a change of the model."""
    modules = attention_modules(translator.engine.model, "cross")
    kept = [module.normalizer for module in modules]
    for layer, module in enumerate(modules):
        is_edited = change.edit is not None and change.edit[0] == layer
        silenced = [change.silenced[2]] if change.silenced and change.silenced[1] == layer else []
        _, head, step, slot, weight = change.edit if change.edit and is_edited else (0, 0, 0, 0, 0.0)
        module.normalizer = ChangedRows(head, step, {slot: weight} if is_edited else {}, silenced=silenced)
    try:
        ((result,),) = translator.engine.translate([replace(source, prefix=change.begin)], SEARCHES["greedy"])
    finally:
        for module, normalizer in zip(modules, kept, strict=True):
            module.normalizer = normalizer
    return result.hypothesis


def measure_changes(translator: Any, folder: Path, sentences: Sequence[str], cases: int) -> dict[str, int]:
    """How many answers of changed models differ from PyTorch's, by kind; the translator has the weights of the page."""
    random, decoder = Random(4), translator.bundle.model.decoder
    differences = {}
    with opened(live_page(translator, folder, sentences[0])) as tab:
        for kind in ("force", "silence", "edit"):
            differences[kind] = 0
            for sentence in sentences[:cases]:
                ((segment,),) = translator.make_segments([normalize(sentence)[0]], WHOLE, 0)
                source, shape = segment.source, (decoder.layers, decoder.heads)
                plain = translate_changed(translator, source, Change())
                change = random_change(kind, random, shape, plain.tokens, len(source.row))
                names = [piece.replace("\u2581", " ") for piece in translator.target.pieces(list(change.begin))]
                address = f"#lang=en&search=greedy&text={quote(segment.text)}&{change.address(names)}"
                text, _, logp = tab.evaluate(RUN, ["visit", address])
                hypothesis = translate_changed(translator, source, change)
                expected = translator.target.decode([list(hypothesis.tokens)])[0].strip()
                is_tie = abs(logp - hypothesis.log_probability) <= 0.01  # the page shows two digits
                differences[kind] += text != expected and not is_tie
                if text != expected:
                    print(f"# {kind} {change}: {text!r} {logp}, PyTorch {expected!r} {hypothesis.log_probability:.2f}")
    return differences


# ------------------------------------------------------------------------------------------------- models and tokens

SINGLE = ("encoder.width=256", "decoder.width=256")  # a dot product needs keys and queries of one width
TRAINED: dict[str, tuple[str, tuple[str, ...]]] = {  # recipe, and settings of [model]
    "bottleneck": ("rnn-bottleneck", ()),
    "gru-luong": ("gru-luong", ()),
    "hard": ("lstm-hard", ()),
    **{name: ("lstm-bahdanau", (*SINGLE, f"decoder.attention.score={name}")) for name in SCORES},
}


@dataclass(frozen=True)
class LiveModel:
    """A model for live pages, sentences to translate, and a test set."""

    model: str | Path
    sentences: Sequence[str]
    test: tuple[Sequence[str], Sequence[str]]


def bundled_model(name: str, folder: Path) -> LiveModel:
    data = samples.unpack(name, folder / "test", limit=0)
    source, target = ((data / f"test.{side}").read_text("utf-8").splitlines() for side in name.split("-")[:2])
    return LiveModel(name, validation_lines(name)[0], (source, target))


def captions_model(folder: Path) -> LiveModel:
    """A transformer-tiny for the captions of Multi30k, English to German."""
    data, names = folder / "multi30k", {"train": "train", "valid": "val", "test": "test_2016_flickr"}
    data.mkdir(exist_ok=True)
    for (split, name), side in product(names.items(), ("en", "de")):
        text = "".join(f"{line}\n" for line in read_lines(f"multi30k/{name}.{side}.gz"))
        (data / f"{split}.{side}").write_text(text, encoding="utf-8")
    run_training(data, ("en", "de"), folder / "captions", "--recipe", "transformer-tiny", "--time", "20m")
    source, target = ((data / f"test.{side}").read_text("utf-8").splitlines() for side in ("en", "de"))
    return LiveModel(
        folder / "captions" / "model", (data / "valid.en").read_text("utf-8").splitlines(), (source, target)
    )


def train_model(folder: Path, name: str, *, quick: bool) -> Any:
    """A translator that was trained for two and a half minutes on the sample."""
    recipe, settings = TRAINED[name]
    length = ["--steps", "20"] if quick else ["--time", "150s"]
    changed = [option for setting in settings for option in ("--set", f"model.{setting}")]
    data = samples.unpack(SAMPLE, folder / "data")
    return load(run_training(data, SAMPLE.split("-"), folder / name, "--recipe", recipe, *length, *changed))


def run_training(data: Path, languages: Sequence[str], run: Path, *options: str) -> Path:
    """`heedful train` with the corpora of a directory: the model; a finished one is kept."""
    if (run / "model").is_dir():
        return run / "model"
    train, valid = ([str(data / f"{part}.{side}") for side in languages] for part in ("train", "valid"))
    command = [sys.executable, "-m", "heedful", "train", *train, "--out", str(run), "--force", *options]
    command += [option for file in valid for option in ("--validation", file)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{run.name}: {done.stdout[-500:]}{done.stderr[-1500:]}")
    return run / "model"


def measure_int8(live: LiveModel) -> float:
    """BLEU that the weights of the page cost, on the test set."""
    source, target = live.test
    translator, bleu = load(live.model), []
    for _ in range(2):
        bleu.append(score("bleu", [translation.text for translation in translator(source)], target).value)
        use_page_weights(translator)
    print(f"BLEU {bleu[0]:.2f}, with int8 {bleu[1]:.2f}")
    return bleu[0] - bleu[1]


def count_other_tokens(count: int) -> int:
    """How many lines in eight scripts the page's tokenizer splits differently than SentencePiece, under node."""
    lines, different = mixed_lines(count), 0
    for kind in ("bpe", "unigram"):
        tokenizer = train_tokenizer(kind, lines[: count // 2], 900)
        (tokens,) = run_engine({"job": "tokenize", "tokenizer": describe_tokenizer(tokenizer), "texts": lines})
        different += sum(ours != [*theirs] for ours, theirs in zip(tokens, tokenizer.encode(lines), strict=True))
    return different


def count_differences(translator: Any, sentences: Sequence[str], answers: Sequence[str], options: SearchOptions) -> int:
    """The number of sentences whose translation is another one than PyTorch's, unless both rank equally high."""
    expected = [translator(sentence, beam=options.beam, split_sentences=False) for sentence in sentences]
    other = [row for row, answer in enumerate(answers) if answer != expected[row].text]
    scores = translator.score_targets([sentences[row] for row in other], [answers[row] for row in other])
    ties = 0
    for row, result in zip(other, scores, strict=True):
        log_probs = result.hypothesis.log_probabilities
        total = abs(result.hypothesis.log_probability - expected[row].log_probability)
        ties += total <= 1e-4 * len(log_probs)
    return len(other) - ties


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--quick", action="store_true")
    options.add_argument("--runs", type=Path, metavar="DIR", help="keep corpora and models here")
    arguments = options.parse_args()
    header(__file__)
    if BROWSER is None:
        return skip("size and speed of a page", "there is no Chromium here")
    with tempfile.TemporaryDirectory() as temporary:
        folder = (arguments.runs or Path(temporary)).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        return verdict(
            [*measure_pages(folder, quick=arguments.quick), *measure_live_pages(folder, quick=arguments.quick)]
        )


def measure_pages(folder: Path, *, quick: bool) -> Iterator[Claim]:
    """Size and speed of recorded pages."""
    model = random_model()
    kilobytes_of = sizes(model)
    for name, kilobytes in kilobytes_of.items():
        print(f"{name:30} {kilobytes:8.1f} kB")
    milliseconds, frames = measure_in_browser(model, folder, 3 if quick else 11)
    for name, times in frames.items():
        print(f"{name}: a frame {statistics.median(times):.2f} ms, in the slowest round {max(times):.2f} ms")
    frame = max(map(statistics.median, frames.values()))
    print(f"open {milliseconds:.0f} ms; a frame {frame:.2f} ms", flush=True)
    yield "kB of maps below 120", 120 - kilobytes_of["maps of all three kinds"], 0.0
    yield "kB of the search tree below 100", 100 - kilobytes_of["search tree"], 0.0
    yield "kB of vectors below 1,500", 1500 - kilobytes_of["vectors of all three kinds"], 0.0
    yield "kB of script and style below 200", 200 - kilobytes_of["script and style"], 0.0
    yield "milliseconds below 1,000 to open 20 sentences", 1000 - milliseconds, 0.0
    yield "milliseconds below 8 of a frame", 8 - frame, 0.0


def measure_live_pages(folder: Path, *, quick: bool) -> Iterator[Claim]:
    """Size and speed of live pages, and what differs from PyTorch and SentencePiece."""
    has_captions = not quick and (DATA / "multi30k").is_dir()
    live = captions_model(folder) if has_captions else bundled_model(SAMPLE, folder)
    sentences, few = live.sentences[: 20 if quick else 1000], 20 if quick else 200
    translator = load(live.model)
    figures = measure_live(translator, folder, sentences)
    first, greedy, beam = (figures[name] for name in ("first", "greedy", "beam"))
    print(f"{live.model}: first answer {first:.0f} ms, greedy {greedy:.0f} ms, beam 5 {beam:.0f} ms", flush=True)
    yield "bytes per weight below 1.4 of a live page", 1.4 - figures["bytes"], 0.0
    yield "milliseconds below 1,500 of the first live answer", 1500 - first, 0.0
    yield "milliseconds below 150 of a live answer, greedy", 150 - greedy, 0.0
    yield "milliseconds below 500 of a live answer, beam 5", 500 - beam, 0.0
    yield "milliseconds below 50 that events wait while it computes", 50 - figures["events"], 0.0
    yield "milliseconds below 100 until a dragged cell is drawn", 100 - figures["drag"], 0.0
    yield "no live answer differs from PyTorch's", -figures["differences"], 0.0
    for kind, count in measure_changes(translator, folder, sentences, 5 if quick else 100).items():
        yield f"no answer differs after {kind}", -count, 0.0
    translators = {name: partial(load, name) for name in ((SAMPLE,) if has_captions else ()) + (RECURRENT_SAMPLE,)}
    translators |= {
        name: partial(train_model, folder, name, quick=quick) for name in list(TRAINED)[: 1 if quick else None]
    }
    samples_lines = validation_lines(SAMPLE)[0][:few]
    for name, make in translators.items():
        count = measure_live(make(), folder, samples_lines)["differences"]
        print(f"{name}: {count} of {2 * len(samples_lines)} answers differ from PyTorch's", flush=True)
        yield f"no live answer of {name} differs", -count, 0.0
    if NODE is None:
        skip("tokens of the page", "node is not installed")
    else:
        yield "no line has other tokens", -count_other_tokens(500 if quick else 10_000), 0.0
    yield "BLEU below 0.3 that int8 costs", 0.3 - measure_int8(live), 0.0


if __name__ == "__main__":
    sys.exit(main())
