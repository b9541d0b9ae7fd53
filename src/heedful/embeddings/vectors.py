"""Word vectors: a word and a row of numbers per line, as fastText, GloVe, word2vec and NILC publish them.

vectors = read_vectors(Path("words.vec"))
vectors.near("dog")                        # [("puppy", 0.83), ...]
vectors.analogy("man", "king", "woman")    # man is to king as woman is to ...
"""

from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt

from heedful.corpus.text_files import iterate_lines, suggest_path
from heedful.errors import ConfigError, DataError, did_you_mean
from heedful.files import replace_file

MAX_LINE_BYTES = 1 << 20
MAX_SUGGESTIONS = 20_000  # frequent words, among which a similar one is suggested

Floats = npt.NDArray[np.float32]


@dataclass(frozen=True)
class WordVectors:
    """Words, most frequent first, and their vectors [V, D]."""

    words: Sequence[str]
    matrix: Floats

    @cached_property
    def rows(self) -> dict[str, int]:
        """The row of each word."""
        return {word: row for row, word in reversed(list(enumerate(self.words)))}

    @cached_property
    def directions(self) -> Floats:
        """The vectors with length 1; a product of two is their cosine."""
        norms = np.linalg.norm(self.matrix, axis=1, keepdims=True)
        directions: Floats = self.matrix / np.maximum(norms, 1e-12)
        return directions

    def row_of(self, word: str) -> int:
        """The row of a word, or of its lower-case form."""
        for form in (word, word.lower()):
            if form in self.rows:
                return self.rows[form]
        suggestion = did_you_mean(word, self.words[:MAX_SUGGESTIONS])
        raise DataError(
            f"there is no vector for `{word}`{suggestion if 'did you mean' in suggestion else ': use another word'}"
        )

    def near(self, word: str, count: int = 10) -> list[tuple[str, float]]:
        """The words with the largest cosines."""
        row = self.row_of(word)
        return self._largest(self.directions[row], {row}, count)

    def analogy(self, first: str, second: str, third: str, count: int = 10) -> list[tuple[str, float]]:
        """first is to second as third is to ...: the words nearest to second - first + third (Mikolov et al. 2013)"""
        rows = [self.row_of(word) for word in (first, second, third)]
        a, b, c = self.directions[rows]
        target = b - a + c
        return self._largest(target / max(float(np.linalg.norm(target)), 1e-12), set(rows), count)

    def similarity(self, first: str, second: str) -> float:
        """The cosine of the vectors of two words."""
        return float(self.directions[self.row_of(first)] @ self.directions[self.row_of(second)])

    def _largest(self, direction: Floats, excluded: set[int], count: int) -> list[tuple[str, float]]:
        cosines = self.directions @ direction
        size = min(count + len(excluded), len(cosines))
        candidates = np.argpartition(-cosines, size - 1)[:size]
        order = sorted((row for row in candidates.tolist() if row not in excluded), key=lambda row: -cosines[row])
        return [(self.words[row], float(cosines[row])) for row in order[:count]]


# --------------------------------------------------------------------------------------------------------- .vec files


def read_vectors(path: Path, max_words: int | None = None, only: Container[str] | None = None) -> WordVectors:
    """Read a text file of vectors (plain, .gz or .zst), with or without a first line that contains V and D.

    With `only`, other words are skipped, so a few words of a large file are read fast and need little memory.
    """
    if not path.is_file():
        raise DataError(f"there is no file {path}{suggest_path(path)}")
    words: list[str] = []
    rows: list[Floats] = []
    width = None
    for number, raw in enumerate(iterate_lines(path, MAX_LINE_BYTES), 1):
        fields = raw.decode(errors="replace").rstrip().split(" ")
        if number == 1 and len(fields) == 2 and all(field.isdigit() for field in fields):
            width = int(fields[1])
            continue
        if max_words is not None and len(words) >= max_words:
            break
        width = len(fields) - 1 if width is None else width
        if only is not None and 0 < width < len(fields) and " ".join(fields[:-width]) not in only:
            continue
        try:
            values = np.array(fields[-width:], dtype=np.float32)
        except ValueError:
            values = np.array([], dtype=np.float32)
        if width < 1 or len(fields) <= width or not np.isfinite(values).all() or len(values) != width:
            raise DataError(
                f"{path}:{number}: expected a word and {max(width, 1)} numbers, separated by spaces; is this a text "
                "file of word vectors (.vec or .txt)? Convert binary files first"
            )
        words.append(" ".join(fields[:-width]))
        rows.append(values)
    if not rows and only is None:
        raise DataError(f"{path} contains no word vectors: check that it is the right file")
    if not rows:
        return WordVectors([], np.empty((0, width or 0), np.float32))
    return WordVectors(words, np.stack(rows))


def write_vectors(path: Path, vectors: WordVectors) -> None:
    """Write a .vec file with a first line that contains V and D, atomically."""
    if unusual := next((word for word in vectors.words if not word or word.split() != [word]), None):
        raise ConfigError(f"cannot write the word {unusual!r}: a word in a .vec file has no spaces")

    def write(temporary: Path) -> None:
        with temporary.open("w", encoding="utf-8", newline="\n") as stream:
            stream.write(f"{len(vectors.words)} {vectors.matrix.shape[1]}\n")
            for word, row in zip(vectors.words, vectors.matrix, strict=True):
                stream.write(f"{word} {' '.join(f'{value:.6g}' for value in row)}\n")

    replace_file(path, write)


# ------------------------------------------------------------------------------------------- vectors of a vocabulary


MARK = "\u2581"  # SentencePiece's mark of the beginning of a word


def words_of_pieces(pieces: Iterable[str]) -> dict[int, str]:
    """The words that pieces are, by the piece's id.

    If pieces have SentencePiece's mark, only marked ones are words: without it, `ing` continues a word.
    """
    numbered = dict(enumerate(pieces))
    if any(piece.startswith(MARK) for piece in numbered.values()):
        numbered = {index: piece for index, piece in numbered.items() if piece.startswith(MARK)}
    words = {index: piece.removeprefix(MARK) for index, piece in numbered.items()}
    return {index: word for index, word in words.items() if word}


def vectors_of_pieces(vectors: WordVectors, pieces: Iterable[str]) -> dict[int, Floats]:
    """The vectors of pieces that are whole words, or of their lower-case forms, by the piece's id."""
    rows = vectors.rows
    matches = {index: rows.get(word, rows.get(word.lower())) for index, word in words_of_pieces(pieces).items()}
    return {index: vectors.matrix[row] for index, row in matches.items() if row is not None}
