"""Embedding tables that start from word vectors: `model.embeddings = "words.vec"`.

A piece of the vocabulary starts from the vector of the word that it is; other pieces start from random numbers, as
usual. Vectors are scaled to the size of random rows, so the first steps are like those of other runs.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor

from heedful.bundle.format import source_table_name, target_table_name
from heedful.config import EmbeddingFiles, ModelSettings, Settings
from heedful.embeddings import read_vectors
from heedful.embeddings.vectors import vectors_of_pieces, words_of_pieces
from heedful.errors import ConfigError
from heedful.files import file_sha256
from heedful.text.tokenizer import Tokenizer
from heedful.training.data import TrainingData
from heedful.training.events import EventHandler, Note
from heedful.training.weights import initialize_model


def table_names(model: ModelSettings) -> dict[str, str]:
    """The embedding tables of a model, by side."""
    names = {"source": source_table_name(model), "target": target_table_name(model)}
    return {side: name for side, name in names.items() if name is not None}


def embedding_files(model: ModelSettings) -> dict[str, Path]:
    """The files of a model's tables, by side. One name for both sides may have only one table to fill."""
    files = model.embeddings or EmbeddingFiles()
    names = table_names(model)
    given = {side: Path(file) for side, file in files if file is not None}
    if files.source == files.target and names:
        given = {side: file for side, file in given.items() if side in names}
    for side in given:
        if side not in names:
            raise ConfigError(f"model.embeddings.{side}: this model has no {side} embeddings: remove it")
    if model.tie_embeddings == "all" and len(set(given.values())) > 1:
        raise ConfigError(
            'model.tie_embeddings = "all" is one table for both sides: name one file, model.embeddings = '
            f'"{given["source"]}", or set model.tie_embeddings = "target"'
        )
    return given


def check_embeddings(settings: Settings) -> None:
    """Raise an error if the files of word vectors do not fit the model; only their beginnings are read."""
    if settings.model is None or settings.model.embeddings is None:
        return
    width = settings.model.width
    for path in embedding_files(settings.model).values():
        vector_width = read_vectors(path, max_words=1).matrix.shape[1]
        if vector_width != width:
            raise ConfigError(
                f"model.embeddings: the vectors of {path} have {vector_width} numbers, but model.width is {width}: set "
                f"model.width = {vector_width}, or learn vectors with heedful words learn CORPUS --width {width}"
            )


def embedding_digests(files: EmbeddingFiles) -> dict[str, str]:
    """A hash of each file, which identifies it wherever it is."""
    return {side: file_sha256(Path(file)) for side, file in files if file is not None}


def initialize_embeddings(
    settings: Settings, data: TrainingData, device: torch.device, on_event: EventHandler
) -> dict[str, Tensor]:
    """The weights of a new model whose embeddings start from word vectors; reports how many pieces have one."""
    assert settings.model is not None
    model, names = initialize_model(settings, data.prepared, device), table_names(settings.model)
    rows_of_side: Mapping[str, Sequence[Sequence[int]]] = {
        "source": data.validation.sources,
        "target": data.validation.targets,
    }
    for side, path in embedding_files(settings.model).items():
        tokenizer = data.prepared.tokenizer(side)
        matches = find_vectors(path, tokenizer)
        if matches:
            ids = torch.tensor(list(matches), device=device)
            with torch.no_grad():
                model.get_parameter(names[side])[ids] = scale_vectors(torch.stack(list(matches.values()))).to(device)
        tokens = [token for row in rows_of_side[side] for token in row]
        share = sum(token in matches for token in tokens) / max(1, len(tokens))
        on_event(
            Note(
                f"{side} embeddings: {len(matches):,} of {tokenizer.size:,} pieces are words of {path.name}; they are "
                f"{share:.0%} of the {side} tokens of the validation set",
                "choice" if matches else "warning",
            )
        )
    return model.state_dict()


def find_vectors(path: Path, tokenizer: Tokenizer) -> dict[int, Tensor]:
    """The vectors of the pieces that are words of a file, by the piece's id."""
    pieces = tokenizer.pieces(range(tokenizer.size))
    words = words_of_pieces(pieces).values()
    vectors = read_vectors(path, only={*words, *(word.lower() for word in words)})
    return {index: torch.from_numpy(row) for index, row in vectors_of_pieces(vectors, pieces).items()}


def scale_vectors(vectors: Tensor) -> Tensor:
    """The vectors [N, D], scaled so that the mean square of their numbers is 1/D, as in a random table."""
    mean_square = vectors.square().mean().clamp(min=1e-12)
    return vectors * (vectors.size(1) * mean_square).rsqrt()
