"""The worker process: `python -m heedful.serve.worker FOLDER` reads batches from stdin and writes results to stdout.

Only this process opens the model, so a crash in native code does not stop the server. A thread sends heartbeats;
engines release the interpreter lock while they compute.
"""

import argparse
import os
import sys
import threading
import time
from base64 import b64decode
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any, BinaryIO

from heedful.data.store import MANIFEST
from heedful.errors import HeedfulError
from heedful.files import file_sha256
from heedful.inputs.kinds import make_input
from heedful.inputs.media import MediaError
from heedful.serve.protocol import (
    HEARTBEAT_SECONDS,
    LINE_OVERHEAD_TOKENS,
    TEST_JOBS,
    beam_cost_factor,
    encode_frame,
    encode_job,
    read_frame,
    require_servable,
    too_many_tokens_message,
)
from heedful.serve.rejection import RequestRejected
from heedful.text.normalize import normalize
from heedful.translation.loading import load
from heedful.translation.translator import TranslationOptions, Translator
from heedful.types import Translation


def main() -> None:
    """Open the model, report it, then translate until stdin is closed."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--max-request-tokens", type=int, default=4096)
    args = parser.parse_args()
    out = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)  # output of libraries must not corrupt the frames
    writer = FrameWriter(out)
    try:
        translator = load(args.folder, threads=args.threads)
        kind = translator.bundle.description.input.kind
        require_servable(kind, translator.location.name)
        translator(SOURCE_READERS[kind](translator, encode_job(TEST_JOBS[kind]), sys.maxsize))  # the first one is slow
    except HeedfulError as error:
        writer.write({"error": str(error)})
        sys.exit(1)
    model_info = describe_model(translator)
    writer.write({"ready": model_info})
    threading.Thread(target=writer.send_heartbeats, daemon=True).start()
    model_version = {name: model_info[name] for name in ("model", "version")}  # part of every result
    while (message := read_frame(sys.stdin.buffer)) is not None:
        results = translate_jobs(translator, message["jobs"], args.max_request_tokens)
        results = [result if "error" in result else result | model_version for result in results]
        writer.write({"batch": message["batch"], "results": results})


class FrameWriter:
    """Writes whole frames to a stream, from any thread."""

    def __init__(self, stream: BinaryIO) -> None:
        self.stream, self.lock = stream, threading.Lock()

    def write(self, message: dict[str, Any]) -> None:
        """Write a message; exit if the server has closed the pipe."""
        data = memoryview(encode_frame(message))
        try:
            with self.lock:
                while data:
                    data = data[self.stream.write(data) or 0 :]
        except OSError:
            os._exit(0)

    def send_heartbeats(self) -> None:
        while True:
            time.sleep(HEARTBEAT_SECONDS)
            self.write({"heartbeat": True})


def describe_model(translator: Translator) -> dict[str, Any]:
    """The model's description, for /readyz and the page."""
    described = translator.bundle.description
    return {
        "input": described.input.kind,
        "source": described.source if described.input.kind == "text" else described.input.kind,
        "target": described.target,
        "engine": translator.engine.name,
        "parameters": described.parameters,
        "beam": translator.bundle.generation.beam,
        "model": translator.location.name,
        "version": file_sha256(translator.bundle.folder / MANIFEST)[:12],
        "pid": os.getpid(),
    }


def translate_jobs(
    translator: Translator, jobs: Sequence[Mapping[str, Any]], max_request_tokens: int
) -> list[dict[str, Any]]:
    """Return one result per job; jobs with the same options are translated together."""
    results: list[dict[str, Any]] = [{}] * len(jobs)
    read_sources = SOURCE_READERS[translator.bundle.description.input.kind]
    sources: dict[int, Sequence[Any]] = {}
    groups: dict[str, list[int]] = {}
    for index, job in enumerate(jobs):
        try:
            sources[index] = read_sources(translator, job, max_request_tokens)
        except RequestRejected as rejection:
            results[index] = {"error": rejection.message, "code": rejection.status}
            continue
        groups.setdefault(repr(sorted(job["options"].items())), []).append(index)
    for indices in groups.values():
        options = TranslationOptions(**jobs[indices[0]]["options"])
        window = [source for index in indices for source in sources[index]]
        try:
            translations = iter([translation_as_dict(each) for each in translator.stream([window], options)])
        except HeedfulError as error:
            for index in indices:
                results[index] = {"error": str(error), "code": 422}
            continue
        for index in indices:
            results[index] = {"translations": [next(translations) for _ in sources[index]]}
    return results


def read_texts(translator: Translator, job: Mapping[str, Any], max_request_tokens: int) -> Sequence[str]:
    """The texts of a job; RequestRejected if there are none, or if they have too many tokens."""
    texts: Sequence[str] = job["texts"]
    if not texts:
        raise RequestRejected(422, "this model translates text")
    num_tokens = count_tokens(translator, texts, job["options"].get("prefix", ""))
    cost_factor = beam_cost_factor(job["options"], translator.bundle.generation.beam)
    if num_tokens * cost_factor > max_request_tokens:
        raise RequestRejected(413, too_many_tokens_message(num_tokens, cost_factor, max_request_tokens))
    return texts


def read_media(translator: Translator, job: Mapping[str, Any], _: int) -> Sequence[Any]:
    """The pictures or recordings of a job, decoded; RequestRejected if there are none, or if one cannot be used.

    Texts are not passed on: the model would take them for paths.
    """
    inputs = make_input(translator.bundle.description.input)
    assert inputs.nouns is not None
    if not job["media"]:
        raise RequestRejected(422, f"this model {inputs.nouns.task}")
    try:
        return [inputs.decode(b64decode(content)) for content in job["media"]]
    except MediaError as error:
        raise RequestRejected(422, f"the {inputs.nouns.source} cannot be used: {error.reason}") from None


SOURCE_READERS: dict[str, Callable[[Translator, Mapping[str, Any], int], Sequence[Any]]] = {
    "text": read_texts,
    "image": read_media,
    "audio": read_media,
}


def count_tokens(translator: Translator, texts: Sequence[str], prefix: str) -> int:
    """Return the number of tokens, including LINE_OVERHEAD_TOKENS and the prefix for each line."""
    lines = [normalize(line)[0] for text in texts for line in text.split("\n")]
    line_tokens = LINE_OVERHEAD_TOKENS + len(translator.target.encode([prefix])[0])
    return sum(line_tokens + len(ids) for ids in translator.source.encode([line for line in lines if line]))


def translation_as_dict(translation: Translation) -> dict[str, Any]:
    """Return a translation as plain values, with its alternatives as strings."""
    fields = asdict(replace(translation, alternatives=()))
    fields["alternatives"] = [alternative.text for alternative in translation.alternatives]
    del fields["weights"]
    return fields


if __name__ == "__main__":
    main()
