"""The GRU encoder-decoder of g2p_en (letters to phonemes): a bottleneck without attention.

checkpoint20.npz, graphemes.txt, phonemes.txt
"""

from pathlib import Path
from zipfile import ZipFile

import numpy as np

from heedful import config
from heedful.bundle import GenerationSettings
from heedful.errors import HeedfulError
from heedful.importers.imported_model import LARGEST, Foreign, floats, lines_of
from heedful.text.tokenizer import SPECIAL, TableTokenizer

WEIGHTS, SOURCE, TARGET = "checkpoint20.npz", "graphemes.txt", "phonemes.txt"
STEPS = 20  # it says at most


def known(folder: Path) -> bool:
    """Whether this is such a folder."""
    return all((folder / name).is_file() for name in (WEIGHTS, SOURCE, TARGET))


def read(folder: Path) -> Foreign:
    """The model, its weights and its lists of letters and phonemes."""
    letters, phonemes = lines_of(folder / SOURCE), lines_of(folder / TARGET)
    if letters[:3] != ["<pad>", "<unk>", "</s>"] or tuple(phonemes[:4]) != SPECIAL:
        raise HeedfulError(f"{folder}: these lists do not begin with the special tokens of g2p_en")
    with ZipFile(folder / WEIGHTS) as archive:
        if sum(one.file_size for one in archive.infolist()) > LARGEST:
            raise HeedfulError(f"{folder / WEIGHTS} holds more than {LARGEST:,} bytes")
    with np.load(folder / WEIGHTS, allow_pickle=False) as file:
        arrays = {name: floats(file[name]) for name in file.files}
    width, size = arrays["enc_emb"].shape[1], arrays["enc_w_hh"].shape[1]
    source = np.insert(arrays["enc_emb"], 2, 0.0, 0)  # their sources have no <s>
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
    return Foreign(
        kind="GRU of g2p_en",
        model=model,
        weights={name: floats(array) for name, array in weights.items()},
        tokenizers={
            "source": TableTokenizer("letters", [*SPECIAL, *letters[3:]]),
            "target": TableTokenizer("words", [*SPECIAL, *("\u2581" + one for one in phonemes[4:])]),
        },
        languages=("en", "phonemes"),
        generation=GenerationSettings(beam=1, max_length=STEPS),
    )
