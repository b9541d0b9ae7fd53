"""`heedful.export(...)`: convert a model to another engine's format and verify its output.

    proof = heedful.export("runs/en-de", "en-de.ct2", to="ctranslate2", quantization="int8")
    print(proof.summary)

An export is written to a temporary directory, opened by its own engine, compared with the model on held-out sentences,
and then moved to its destination. If the results differ, nothing is written.
"""

import shutil
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from heedful.alignment import AlignmentMethod
from heedful.bundle import EXPORT_CARD, Bundle, open_bundle, sibling, write_inner_folder
from heedful.data.store import open_prepared
from heedful.errors import ConfigError, HeedfulError, did_you_mean, require, suggest_arguments
from heedful.exporters import argos, ctranslate2, marian
from heedful.exporters.parity import Proof, ProofError, prove
from heedful.inputs.kinds import StoredRow, make_input
from heedful.samples import find_sample, validation_lines
from heedful.translation.loading import ENGINES, load, make_translator

MAX_PROBES = 200  # sentences


@dataclass(frozen=True)
class ExportFormat:
    """An entry of FORMATS: how to write a format, and which engine opens it for the proof."""

    write: Callable[[Bundle, Path, str], AlignmentMethod | None]  # returns how to align words in its engine's output
    quantizations: Sequence[str]  # the default first
    engine: str
    stopping: str = "likely"  # the stopping rule of its engine's search
    suffix: str = ""  # of a single-file export, such as .argosmodel
    next_command: str = "heedful translate {}"  # suggested after the export


def _write_onnx(bundle: Bundle, folder: Path, quantization: str) -> None:
    from heedful.exporters.onnx import write  # needs PyTorch

    write(bundle, folder, quantization)


def _write_argos(bundle: Bundle, folder: Path, quantization: str) -> AlignmentMethod | None:
    argos.check_supported(bundle)
    return ctranslate2.write(bundle, folder, quantization)


FORMATS = {
    "ctranslate2": ExportFormat(ctranslate2.write, ctranslate2.QUANTIZATIONS, "ctranslate2", "ctranslate2"),
    "hugging_face": ExportFormat(marian.write, marian.QUANTIZATIONS, "hugging_face"),
    "onnx": ExportFormat(_write_onnx, ("float32",), "onnx"),
    "argos": ExportFormat(
        _write_argos, argos.QUANTIZATIONS, "ctranslate2", "ctranslate2", argos.SUFFIX, "argospm install {}"
    ),
}


@dataclass(frozen=True)
class Probes:
    """Sources to compare an export on (text to continue, for a language model), with references if known."""

    sources: Sequence[Any]
    references: Sequence[str] | None = None


@suggest_arguments
def export(
    model: str | Path,
    out: str | Path,
    *,
    to: str = "ctranslate2",
    quantization: str | None = None,
    probes: Probes | Sequence[str] | None = None,
    on_progress: Callable[[str], None] = lambda _message: None,
) -> Proof:
    """Write the model in another format, verify it on `probes`, and move it to `out`."""
    export_format = find_format(to)
    quantization = quantization or export_format.quantizations[0]
    if quantization not in export_format.quantizations:
        raise ConfigError(
            f"{to} does not support quantization `{quantization}`"
            + did_you_mean(quantization, export_format.quantizations)
        )
    require("torch", extra="train", whose="verifying an export")
    out = Path(out).resolve()
    if out.is_file() or (out.is_dir() and any(out.iterdir())):
        raise HeedfulError(f"{out} already exists: choose another path")
    if export_format.suffix and out.suffix != export_format.suffix:
        raise ConfigError(
            f"a file for {to} must end in {export_format.suffix}: use --out {out.name}{export_format.suffix}"
        )
    bundle = open_bundle(model)
    new = sibling(out, "made")
    shutil.rmtree(new, ignore_errors=True)
    try:
        new.parent.mkdir(parents=True, exist_ok=True)
        on_progress(f"writing {to}, {quantization}")
        reading = export_format.write(bundle, new, quantization)
        if probes is None:
            probes = validation_probes(bundle)
        elif not isinstance(probes, Probes):
            probes = Probes(probes)
        on_progress(f"comparing translations of {min(MAX_PROBES, len(probes.sources))} sentences")
        exported = make_translator(bundle, ENGINES[export_format.engine](bundle, new))
        proof = prove(
            load(bundle.folder),
            exported,
            probes.sources[:MAX_PROBES],
            probes.references and probes.references[:MAX_PROBES],
            stopping=export_format.stopping,
            is_quantized=quantization != "float32",
        )
        if proof.faults:
            raise ProofError(f"the export does not match the model: {'; '.join(proof.faults)}. Nothing was written")
        if export_format.suffix:
            argos.pack(bundle, new, out, proof_section=EXPORT_CARD.format(to, quantization, proof.summary))
        else:
            write_inner_folder(new, bundle, to, quantization, proof.summary, asdict(proof), reading)
            if out.exists():
                out.rmdir()
            new.rename(out)
    finally:
        shutil.rmtree(new, ignore_errors=True)
    return proof


def find_format(to: str) -> ExportFormat:
    if to not in FORMATS:
        raise ConfigError(f"unknown format `{to}`" + did_you_mean(to, FORMATS))
    return FORMATS[to]


def default_export_path(bundle: Bundle, to: str, quantization: str) -> Path:
    """The default destination: next to the run or the model, and named after it; of a sample, the current directory."""
    folder = bundle.folder.parent if bundle.folder.name == "model" else bundle.folder
    suffix = "" if quantization == "float32" else f"-{quantization}"
    if sample := find_sample(bundle.folder):
        folder = Path(sample).resolve()
    return folder.with_name(f"{folder.name}-{to}{suffix}{find_format(to).suffix}")


def validation_probes(bundle: Bundle) -> Probes:
    """The validation set of the run that trained a model, or of a sample."""
    from heedful.training.data import split_validation
    from heedful.training.resolve import RESOLVED

    if sample := find_sample(bundle.folder):
        return Probes(*validation_lines(sample))
    try:
        text = (bundle.folder.parent / RESOLVED).read_text(encoding="utf-8")
        prepared = open_prepared(tomllib.loads(text)["data"]["prepared_dir"])
    except (OSError, ValueError, LookupError, HeedfulError):
        raise ConfigError(
            f"no validation sentences to verify the export with: {bundle.folder} is not in its run directory, or the "
            "prepared corpus was deleted. Add --probes FILE, a file with one source sentence (or the path of a "
            "picture or recording) per line"
        ) from None
    _, validation = split_validation(prepared, MAX_PROBES)
    inputs = make_input(bundle.description.input)
    if inputs.num_slots == 0:  # a language model continues the first half of each sentence
        words = [reference.split() for reference in validation.references]
        return Probes([" ".join(sentence[: len(sentence) // 2]) for sentence in words])
    if inputs.nouns:
        return Probes([StoredRow(row) for row in validation.sources], validation.references)
    return Probes(validation.texts, validation.references)
