"""The engine's process: `python -m heedful.serve.worker FOLDER` reads asks from its standard input and answers them.

It alone opens the model, so a model that crashes native code takes nothing else with it. A thread tells now and then
that the process lives; engines let go of the interpreter while they compute.
"""

import argparse
import os
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any, BinaryIO

from heedful.data.store import MANIFEST
from heedful.errors import HeedfulError
from heedful.files import file_sha256
from heedful.serve.protocol import BEAT, PER_LINE, framed, received, too_much, width
from heedful.text.normalize import normalize
from heedful.translation.translator import TranslationOptions, Translator, load
from heedful.types import Translation


def main() -> None:
    """Open the model, say so, then answer until the other side hangs up."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--most", type=int, default=4096, help="tokens of one ask")
    given = parser.parse_args()
    out = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)  # what a library prints must not get among the frames
    mouth = Mouth(out)
    try:
        translator = load(given.folder, threads=given.threads)
        translator("a")  # the first answer is slow: not at a user's expense
    except HeedfulError as error:
        mouth.say({"refused": str(error)})
        sys.exit(1)
    told = about(translator)
    mouth.say({"ready": told})
    threading.Thread(target=mouth.beat, daemon=True).start()
    by = {name: told[name] for name in ("model", "version")}  # which model it was goes with every answer
    while (message := received(sys.stdin.buffer)) is not None:
        answers = answered(translator, message["asks"], given.most)
        mouth.say({"job": message["job"], "answers": [one if "error" in one else one | by for one in answers]})


class Mouth:
    """One frame at a time, from whichever thread."""

    def __init__(self, stream: BinaryIO) -> None:
        self.stream, self.lock = stream, threading.Lock()

    def say(self, message: dict[str, Any]) -> None:
        """Send a message; where nobody listens any more, it is over."""
        data = memoryview(framed(message))
        try:
            with self.lock:
                while data:
                    data = data[self.stream.write(data) or 0 :]
        except OSError:
            os._exit(0)

    def beat(self) -> None:
        """Tell that we live."""
        while True:
            time.sleep(BEAT)
            self.say({"beat": 0})


def about(translator: Translator) -> dict[str, Any]:
    """What the server should know."""
    described = translator.bundle.description
    return {
        "source": described.source,
        "target": described.target,
        "engine": translator.engine.name,
        "parameters": described.parameters,
        "beam": translator.bundle.generation.beam,
        "model": translator.location.name,
        "version": file_sha256(translator.bundle.folder / MANIFEST)[:12],
        "pid": os.getpid(),
    }


def answered(translator: Translator, asks: Sequence[Mapping[str, Any]], most: int) -> list[dict[str, Any]]:
    """The answers to several asks: those with the same options are translated together."""
    found: list[dict[str, Any]] = [{}] * len(asks)
    groups: dict[str, list[int]] = {}
    for number, ask in enumerate(asks):
        tokens = count(translator, ask["texts"], ask["options"].get("prefix", ""))
        wide = width(ask["options"], translator.bundle.generation.beam)
        if tokens * wide > most:
            found[number] = {"error": too_much(tokens, wide, most), "code": 413}
            continue
        groups.setdefault(repr(sorted(ask["options"].items())), []).append(number)
    for numbers in groups.values():
        options = TranslationOptions(**asks[numbers[0]]["options"])
        texts = [text for number in numbers for text in asks[number]["texts"]]
        try:
            told = iter([plain(one) for one in translator.stream([texts], options)])
        except HeedfulError as error:
            for number in numbers:
                found[number] = {"error": str(error), "code": 422}
            continue
        for number in numbers:
            found[number] = {"translations": [next(told) for _ in asks[number]["texts"]]}
    return found


def count(translator: Translator, texts: Sequence[str], prefix: str) -> int:
    """How many tokens some texts have, each line counted for some more: a character may be many."""
    lines = [normalize(line)[0] for text in texts for line in text.split("\n")]
    each = PER_LINE + len(translator.target.encode([prefix])[0])
    return sum(each + len(ids) for ids in translator.source.encode([line for line in lines if line]))


def plain(found: Translation) -> dict[str, Any]:
    """A translation as plain values."""
    tree = asdict(replace(found, alternatives=()))
    tree["alternatives"] = [one.text for one in found.alternatives]
    del tree["weights"]
    return tree


if __name__ == "__main__":
    main()
