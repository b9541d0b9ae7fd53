"""How large is an inspection page, and how fast is it in a real browser?

A Transformer of 6 + 6 layers with 8 heads, width 512 and random weights; a source and a forced answer of 25 tokens,
beam of 5. Then 20 sentences in one page, and a sentence of 60 tokens that is scrubbed from end to end, measured by the
browser (CPU time of script, style and layout) in headless Chromium, from a file, without a network.

Claims: maps of all three kinds under 120 kB; the search tree under 100 kB; vectors of all scores under 1.5 MB and only
on request; our script and style under 200 kB; 20 sentences open in under a second; a frame costs at most 8 ms, in the
tabs Next word and Map.

    pip install playwright            (and Debian's chromium, or another one)
    python benchmarks/viewer.py [--quick]

--quick: fewer frames.
"""

import argparse
import shutil
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch

from heedful import config
from heedful.build import build
from heedful.inspection.api import Page
from heedful.inspection.page import load_viewer
from heedful.inspection.record import InspectedModel, InspectedSource, record_sentence
from heedful.search import Beam
from heedful.trace import Sentence, TraceDocument, dump_trace
from report import header, skip, verdict

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
    script, style, glossary = load_viewer()
    return {
        "maps of all three kinds": maps,
        "search tree": tree,
        "vectors of cross-attention": cross,
        "vectors of all three kinds": all_vectors,
        "script and style": (len(script.encode()) + len(style.encode())) / 1000,
        "glossary": len(glossary.encode()) / 1000,
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
        opened = []
        for _ in range(rounds):
            tab = browser.new_context(viewport={"width": 1280, "height": 800}, offline=True).new_page()
            tab.goto(many.as_uri())
            tab.wait_for_selector("html[data-ready]")
            opened.append(float(tab.get_attribute("html", "data-ready") or 0))
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
    return statistics.median(opened), frames


SCRUB = """async () => {
    const slider = document.querySelector("#stage input[type=range]");
    for (let step = 0; step < 60; step++) {
        slider.value = step;
        slider.dispatchEvent(new Event("input"));
        await new Promise(requestAnimationFrame);
        await new Promise(requestAnimationFrame);
    }
}"""


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--quick", action="store_true")
    arguments = options.parse_args()
    header(__file__)
    if BROWSER is None:
        return skip("size and speed of a page", "there is no Chromium here")
    model = random_model()
    kilobytes_of = sizes(model)
    for name, kilobytes in kilobytes_of.items():
        print(f"{name:30} {kilobytes:8.1f} kB")
    with tempfile.TemporaryDirectory() as folder:
        opened, frames = measure_in_browser(model, Path(folder), 3 if arguments.quick else 11)
    for name, milliseconds in frames.items():
        print(
            f"{name}: a frame {statistics.median(milliseconds):.2f} ms, in the slowest round {max(milliseconds):.2f} ms"
        )
    frame = max(map(statistics.median, frames.values()))
    print(f"open {opened:.0f} ms; a frame {frame:.2f} ms")
    return verdict(
        [
            ("kB of maps below 120", 120 - kilobytes_of["maps of all three kinds"], 0.0),
            ("kB of the search tree below 100", 100 - kilobytes_of["search tree"], 0.0),
            ("kB of vectors below 1,500", 1500 - kilobytes_of["vectors of all three kinds"], 0.0),
            ("kB of script and style below 200", 200 - kilobytes_of["script and style"], 0.0),
            ("milliseconds below 1,000 to open 20 sentences", 1000 - opened, 0.0),
            ("milliseconds below 8 of a frame", 8 - frame, 0.0),
        ]
    )


if __name__ == "__main__":
    sys.exit(main())
