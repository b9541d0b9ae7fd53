"""`heedful.export(...)`: a model in the format of another engine, with a proof that it says the same.

    proof = heedful.export("runs/en-de", "en-de.ct2", to="ctranslate2", rounding="int8")
    print(proof.line)

An export is written beside its place, opened by its own engine, held against the model on sentences that neither has
learned from, and only then put there. What does not say the same is not written at all.
"""

import shutil
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from heedful.alignment import Reading
from heedful.bundle import Bundle, beside, open_bundle
from heedful.data.store import open_prepared
from heedful.errors import ConfigError, HeedfulError, did_you_mean, require
from heedful.exported import PROVED, write_inner
from heedful.exporters import argos, ctranslate2, marian
from heedful.exporters.parity import Proof, ProofError, prove
from heedful.translation.translator import ENGINES, Translator, load

PROBES = 200  # sentences at most


@dataclass(frozen=True)
class Format:
    """A line of FORMATS."""

    write: Callable[[Bundle, Path, str], Reading | None]  # gives how to read links off what its engine shows
    roundings: Sequence[str]  # the usual one first
    engine: str  # that opens it
    stopping: str = "likely"  # the rule by which its engine ends a search, which the proof follows too
    suffix: str = ""  # of an export that is one file, such as .argosmodel
    next: str = "heedful translate {}"  # what to type with it


def _onnx(bundle: Bundle, folder: Path, rounding: str) -> None:
    from heedful.exporters.onnx import write  # PyTorch traces the graphs

    write(bundle, folder, rounding)


def _argos(bundle: Bundle, folder: Path, rounding: str) -> Reading | None:
    argos.check(bundle)
    return ctranslate2.write(bundle, folder, rounding)


FORMATS = {
    "ctranslate2": Format(ctranslate2.write, ctranslate2.ROUNDINGS, "ctranslate2", "ctranslate2"),
    "hugging_face": Format(marian.write, marian.ROUNDINGS, "hugging_face"),
    "onnx": Format(_onnx, ("float32",), "onnx"),
    "argos": Format(_argos, argos.ROUNDINGS, "ctranslate2", "ctranslate2", argos.SUFFIX, "argospm install {}"),
}


@dataclass(frozen=True)
class Probes:
    """Sentences to hold an export against, with their translations where they are known."""

    sources: Sequence[str]
    references: Sequence[str] | None = None


def export(
    model: str | Path,
    out: str | Path,
    *,
    to: str = "ctranslate2",
    rounding: str | None = None,
    probes: Probes | Sequence[str] | None = None,
    watch: Callable[[str], None] = lambda _what: None,
) -> Proof:
    """Write the model as another engine reads it, prove it on some sentences, and only then put it in its place."""
    kind = format_of(to)
    rounding = rounding or kind.roundings[0]
    if rounding not in kind.roundings:
        raise ConfigError(f"{to} cannot be rounded to `{rounding}`" + did_you_mean(rounding, kind.roundings))
    require("torch", extra="train", whose="the proof of an export")
    out = Path(out).resolve()
    if out.is_file() or (out.is_dir() and any(out.iterdir())):
        raise HeedfulError(f"{out} is there already: name another place")
    if out.suffix != kind.suffix and kind.suffix:
        raise ConfigError(f"{to} reads files whose names end in {kind.suffix}: name it {out.name}{kind.suffix}")
    bundle = open_bundle(model)
    new = beside(out, "made")
    shutil.rmtree(new, ignore_errors=True)
    try:
        new.parent.mkdir(parents=True, exist_ok=True)
        watch(f"writing {to}, {rounding}")
        reading = kind.write(bundle, new, rounding)
        held = probes if isinstance(probes, Probes) else Probes(probes) if probes is not None else validation_of(bundle)
        watch(f"comparing what both say to {min(PROBES, len(held.sources))} sentences")
        theirs = Translator(bundle, ENGINES[kind.engine](bundle, new))
        proof = prove(
            load(bundle.folder),
            theirs,
            held.sources[:PROBES],
            held.references and held.references[:PROBES],
            stopping=kind.stopping,
            rounded=rounding != "float32",
        )
        if proof.faults:
            raise ProofError(
                f"the export does not say what the model says: {'; '.join(proof.faults)}. Nothing was written"
            )
        if kind.suffix:
            argos.pack(bundle, new, out, proved=PROVED.format(to, rounding, proof.line))
        else:
            write_inner(new, bundle, to, rounding, proof.line, asdict(proof), reading)
            if out.exists():
                out.rmdir()
            new.rename(out)
    finally:
        shutil.rmtree(new, ignore_errors=True)
    return proof


def format_of(to: str) -> Format:
    """A line of FORMATS."""
    if to not in FORMATS:
        raise ConfigError(f"unknown format `{to}`" + did_you_mean(to, FORMATS))
    return FORMATS[to]


def export_name(bundle: Bundle, to: str, rounding: str) -> Path:
    """Where an export goes unless one says where: beside the run or the model, and named after it."""
    folder = bundle.folder.parent if bundle.folder.name == "model" else bundle.folder
    rounded = "" if rounding == "float32" else f"-{rounding}"
    return folder.with_name(f"{folder.name}-{to}{rounded}{format_of(to).suffix}")


def validation_of(bundle: Bundle) -> Probes:
    """What the run that made a model validated on."""
    from heedful.training.data import split_validation
    from heedful.training.resolve import RESOLVED

    try:
        text = (bundle.folder.parent / RESOLVED).read_text(encoding="utf-8")
        prepared = open_prepared(tomllib.loads(text)["data"]["folder"])
    except (OSError, ValueError, LookupError, HeedfulError):
        raise ConfigError(
            f"{bundle.folder} does not lie in the run that made it, or its prepared corpus is gone, so there is "
            "nothing to prove the export with: give --probes FILE, sentences of the source language, one a line"
        ) from None
    _, held = split_validation(prepared, PROBES)
    return Probes(held.texts, held.references)
