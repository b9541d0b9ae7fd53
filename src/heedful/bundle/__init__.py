"""Model directories: written atomically, verified without torch.

    bundle = write_bundle("runs/en-de/model", model=settings.model, weights=arrays, tokenizers=..., ...)
    bundle = open_bundle("runs/en-de")        # or the model directory itself
    model.load_state_dict({name: torch.from_numpy(array) for name, array in read_weights(bundle).items()})

    config.json                languages, vocabularies, [model], dtype, number of weights
    model.safetensors          the weights by name; a tied table is stored once
    source.spm, target.spm     the tokenizers; characters and words: source.vocabulary.json, target.vocabulary.json
    vocab.json                 piece -> id of both sides, for other tools
    generation_config.json     the default search
    training_statistics.json   statistics of the training text
    eval.json                  scores with their signatures
    README.md                  the model card
    manifest.json              size and sha256 of every other file; written last

Every file is untrusted (`verify.py`). No format can contain code: pickle is not used.
"""

from heedful.bundle.card import describe_section, model_card
from heedful.bundle.export_folder import (
    EXPORT_CARD,
    ExportedModel,
    ExportManifest,
    is_export,
    open_export,
    write_inner_folder,
)
from heedful.bundle.format import (
    CARD_FILE,
    CONFIG_FILE,
    EXPORT_FILE,
    FORMAT_VERSION,
    INNER_FOLDER,
    WEIGHTS_FILE,
    Bundle,
    GenerationSettings,
    ModelDescription,
    sibling,
)
from heedful.bundle.verify import find_bundle, open_bundle, read_float_weights, read_weights
from heedful.bundle.write import manifest_entry, replace_statistics, write_bundle

__all__ = [
    "CARD_FILE",
    "CONFIG_FILE",
    "EXPORT_CARD",
    "EXPORT_FILE",
    "FORMAT_VERSION",
    "INNER_FOLDER",
    "WEIGHTS_FILE",
    "Bundle",
    "ExportManifest",
    "ExportedModel",
    "GenerationSettings",
    "ModelDescription",
    "describe_section",
    "find_bundle",
    "is_export",
    "manifest_entry",
    "model_card",
    "open_bundle",
    "open_export",
    "read_float_weights",
    "read_weights",
    "replace_statistics",
    "sibling",
    "write_bundle",
    "write_inner_folder",
]
