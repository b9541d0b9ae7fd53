"""The GRU encoder-decoder of g2p_en (letters to phonemes): a bottleneck without attention.

checkpoint20.npz, graphemes.txt, phonemes.txt
"""

from pathlib import Path
from zipfile import ZipFile

import numpy as np

from heedful import config
from heedful.bundle import GenerationSettings
from heedful.errors import HeedfulError
from heedful.importers.imported_model import MAX_FILE_BYTES, ImportedModel, as_float32, read_lines
from heedful.text.tokenizer import SPECIAL, TableTokenizer

WEIGHTS, SOURCE, TARGET = "checkpoint20.npz", "graphemes.txt", "phonemes.txt"
MAX_PHONEMES = 20  # the limit of g2p_en


def is_g2p_folder(folder: Path) -> bool:
    return all((folder / name).is_file() for name in (WEIGHTS, SOURCE, TARGET))


def read_model(folder: Path) -> ImportedModel:
    """Read the model, its weights and its vocabularies."""
    letters, phonemes = read_lines(folder / SOURCE), read_lines(folder / TARGET)
    if letters[:3] != ["<pad>", "<unk>", "</s>"] or tuple(phonemes[:4]) != SPECIAL:
        raise HeedfulError(f"{folder}: {SOURCE} and {TARGET} do not start with the special tokens of g2p_en")
    with ZipFile(folder / WEIGHTS) as archive:
        if sum(file.file_size for file in archive.infolist()) > MAX_FILE_BYTES:
            raise HeedfulError(f"{folder / WEIGHTS} contains more than {MAX_FILE_BYTES:,} bytes")
    with np.load(folder / WEIGHTS, allow_pickle=False) as file:
        arrays = {name: as_float32(file[name]) for name in file.files}
    width, size = arrays["enc_emb"].shape[1], arrays["enc_w_hh"].shape[1]
    source = np.insert(arrays["enc_emb"], 2, 0.0, 0)  # their source vocabulary has no <s>
    model = config.ModelSettings.model_validate(
        {
            "width": width, "tie_embeddings": "none", "output_bias": True,
            "encoder": {"kind": "recurrent", "width": size, "cell": "gru", "bidirectional": False},
            "decoder": {
                "kind": "recurrent", "width": size, "cell": "gru", "initial_state": "last", "bridge": False,
                "readout": False,
            },
        }
    )  # fmt: skip
    weights = {
        "encoder.embed.table.weight": source,
        "decoder.embed.table.weight": arrays["dec_emb"],
        "decoder.plain_projection.weight": arrays["fc_w"],
        "decoder.plain_projection.bias": arrays["fc_b"],
    }
    for short, name in (("enc", "encoder.ahead.0"), ("dec", "decoder.rnn")):
        for part, long in (("w", "weight"), ("b", "bias")):
            for which in ("ih", "hh"):
                weights[f"{name}.{long}_{which}_l0"] = arrays[f"{short}_{part}_{which}"]
    return ImportedModel(
        kind="GRU of g2p_en",
        model=model,
        weights={name: as_float32(array) for name, array in weights.items()},
        tokenizers={
            "source": TableTokenizer("letters", [*SPECIAL, *letters[3:]]),
            "target": TableTokenizer("words", [*SPECIAL, *("\u2581" + phoneme for phoneme in phonemes[4:])]),
        },
        languages=("en", "phonemes"),
        generation=GenerationSettings(beam=1, max_length=MAX_PHONEMES),
    )
