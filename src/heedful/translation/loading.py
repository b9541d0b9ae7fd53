"""Load a translator from a model directory, a run, an export or the name of a sample."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from heedful.bundle import Bundle, is_export, open_bundle, open_export
from heedful.engines.base import Engine
from heedful.errors import HeedfulError, did_you_mean, require, suggest_arguments
from heedful.text.tokenizer import own_ids_of_foreign
from heedful.translation.sources import TRANSLATORS, Labeler, is_labeler
from heedful.translation.translator import Translator


def _open_torch(bundle: Bundle, folder: Path, **options: Any) -> Engine:  # noqa: ARG001  # same signature for all
    require("torch", extra="train", whose="heedful.load")
    from heedful.engines.torch import open_engine

    return open_engine(bundle, **options)


def _open_ctranslate2(bundle: Bundle, folder: Path, **options: Any) -> Engine:
    from heedful.engines.ctranslate2 import open_engine

    sides = (bundle.tokenizer(side) for side in ("source", "target"))
    pieces = [side.pieces(range(side.size)) for side in sides]
    return open_engine(folder, *pieces, ends=bundle.description.source_ends, **options)


def _open_hugging_face(bundle: Bundle, folder: Path, **options: Any) -> Engine:
    require("torch", extra="train", whose="this export")
    from heedful.engines.hugging_face import open_engine

    return open_engine(
        folder, *(own_ids_of_foreign(bundle.tokenizer(side)) for side in ("source", "target")), **options
    )


def _open_onnx(bundle: Bundle, folder: Path, **options: Any) -> Engine:  # noqa: ARG001  # same signature for all
    from heedful.engines.onnx import open_engine

    return open_engine(folder, **options)


ENGINES: dict[str, Callable[..., Engine]] = {
    "torch": _open_torch,
    "ctranslate2": _open_ctranslate2,
    "hugging_face": _open_hugging_face,
    "onnx": _open_onnx,
}


@suggest_arguments
def load(
    folder: str | Path,
    *,
    others: Iterable[str | Path] = (),
    engine: str | None = None,
    device: str = "cpu",
    threads: int | None = None,
) -> Translator:
    """Load a translator from a model directory, a run, an export or a sample such as "pt-en"; verify all files.

    `others` are runs or model directories with the same vocabulary, for an ensemble. `engine` is one of ENGINES.
    """
    options: dict[str, Any] = {"device": device, "threads": threads}
    if engine is not None and engine not in ENGINES:
        raise HeedfulError(f"unknown engine `{engine}`" + did_you_mean(engine, ENGINES))
    others = list(others)
    if others and engine not in (None, "torch"):
        raise HeedfulError(f"an ensemble runs in PyTorch only: remove the engine `{engine}`, or use `torch`")
    for path in (folder, *others) if others else ():
        if is_export(Path(path)):
            raise HeedfulError(
                f"{path} is an export, but an ensemble needs runs or model directories: pass the original "
                "model directory"
            )
    if is_export(Path(folder)):
        export = open_export(folder)
        if engine not in (None, export.manifest.engine):
            raise HeedfulError(
                f"{folder} is an export for {export.manifest.engine}, not for {engine}: remove the engine "
                f"`{engine}`, or load the model directory"
            )
        engine_of_export = ENGINES[export.manifest.engine](export.bundle, export.folder, **options)
        translator = make_translator(export.bundle, engine_of_export)
        translator.location = export.folder
        return translator
    bundle = open_bundle(folder)
    if others:
        members = [open_bundle(path) for path in others]
        for member in members:
            check_same_vocabulary(bundle, member)
        options["others"] = members
    translator = make_translator(bundle, ENGINES[engine or "torch"](bundle, bundle.folder, **options))
    if others:
        translator.calibration = None  # it is that of the first model
    return translator


def make_translator(bundle: Bundle, engine: Engine) -> Translator:
    """The translator for the kind of sources of a model."""
    if is_labeler(bundle) and bundle.description.input.kind == "text":
        return Labeler(bundle, engine)
    return TRANSLATORS.get(bundle.description.input.kind, Translator)(bundle, engine)


def check_same_vocabulary(first: Bundle, member: Bundle) -> None:
    """Raise HeedfulError unless both models of an ensemble have the same pieces."""
    for side in first.tokenizers:
        if side not in member.tokenizers:
            raise HeedfulError(f"{first.folder} and {member.folder} have different kinds of sources")
        ours, theirs = member.tokenizer(side), first.tokenizer(side)
        if ours.size != theirs.size or ours.pieces(range(ours.size)) != theirs.pieces(range(theirs.size)):
            raise HeedfulError(
                f"{first.folder} and {member.folder} have different vocabularies ({side} side). Train the models of an "
                "ensemble on the same files, for example with --set seed=2"
            )
