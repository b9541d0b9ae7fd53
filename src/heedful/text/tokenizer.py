"""Text to token ids and back.

    tokenizer = train("bpe", sentences, vocabulary=8000)
    tokenizer.decode(tokenizer.encode(["ein Haus"])) == ["ein Haus"]        # exact for normalised text

The first ids are the same for every tokenizer: PAD, UNK, BOS, EOS, then one per tag. A tag, such as <2de>, is put
before a source by its id; text that happens to spell it stays text. Of SentencePiece we switch off everything that
changes text: normalisation is ours (`text/normalise.py`), so that what was removed can be said.
"""

import io
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Protocol

import sentencepiece

from heedful.errors import HeedfulError, did_you_mean

PAD, UNK, BOS, EOS = range(4)
SPECIAL = ("<pad>", "<unk>", "<s>", "</s>")  # in the order of their ids


class Tokenizer(Protocol):
    """What every tokenizer does."""

    size: int  # of the vocabulary, special tokens and tags included

    def encode(self, texts: Sequence[str], threads: int = 1) -> list[list[int]]:
        """Ids of every text, with neither start nor end token."""
        ...

    def sample(self, texts: Sequence[str], amount: float, seed: int) -> list[list[int]]:
        """Ids of every text, cut at random into other pieces: a pure function of its arguments."""
        ...

    def decode(self, rows: Sequence[Sequence[int]]) -> list[str]:
        """The text of every row; special tokens and tags say nothing."""
        ...

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """What each id stands for; a leading U+2581 is a space."""
        ...

    def tag(self, name: str) -> int:
        """The id of a tag."""
        ...

    def save(self, path: Path) -> None:
        """Write the one file that `load` reads."""
        ...


class Subwords:
    """SentencePiece: byte-pair encoding or the unigram language model, with bytes for what has no piece.

    Regularised, BPE leaves out each merge with probability `amount` (BPE-dropout), unigram draws a segmentation with
    probability proportional to P(segmentation) ^ amount.
    """

    def __init__(self, model: bytes) -> None:
        self.model = model
        try:
            self._processor = sentencepiece.SentencePieceProcessor(model_proto=model)
        except RuntimeError as error:
            raise HeedfulError(f"this is not a SentencePiece model: {error}") from None
        if [self._processor.id_to_piece(number) for number in range(len(SPECIAL))] != list(SPECIAL):
            raise HeedfulError(f"a SentencePiece model of heedful starts with {' '.join(SPECIAL)}; this one does not")
        self.size = len(self._processor)

    def encode(self, texts: Sequence[str], threads: int = 1) -> list[list[int]]:
        """Ids of every text, the best segmentation."""
        return list(self._processor.encode(list(texts), num_threads=threads))

    def sample(self, texts: Sequence[str], amount: float, seed: int) -> list[list[int]]:
        """Ids of every text, one segmentation drawn."""
        # SentencePiece seeds each new thread from this one number; one thread a call makes the draw repeatable.
        sentencepiece.set_random_generator_seed(seed % 2**32)
        return list(
            self._processor.encode(list(texts), enable_sampling=True, alpha=amount, nbest_size=-1, num_threads=1)
        )

    def decode(self, rows: Sequence[Sequence[int]]) -> list[str]:
        """The text of every row."""
        return [self._processor.decode(list(row)) for row in rows]

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """What each id stands for."""
        return [self._processor.id_to_piece(number) for number in ids]

    def tag(self, name: str) -> int:
        """The id of a tag."""
        number = self._processor.piece_to_id(name)
        if number == UNK or not self._processor.is_control(number):
            raise HeedfulError(f"{name} is not a tag of this vocabulary; tags are fixed when it is trained")
        return int(number)

    def save(self, path: Path) -> None:
        """Write the SentencePiece model."""
        path.write_bytes(self.model)


class Table:
    """A list of pieces, looked up one by one: characters or words, for teaching. What is not listed becomes UNK."""

    def __init__(self, kind: str, listed: Sequence[str]) -> None:
        self.kind, self.listed = kind, tuple(listed)
        self._ids = {piece: number for number, piece in enumerate(self.listed)}
        self._text = {piece for piece in self.listed[len(SPECIAL) :] if not is_tag(piece)}
        self.size = len(self.listed)

    def encode(self, texts: Sequence[str], threads: int = 1) -> list[list[int]]:  # noqa: ARG002  # same face as Subwords
        """Ids of every text."""
        cut, known = CUTS[self.kind], self._text
        return [[self._ids[piece] if piece in known else UNK for piece in cut(text)] for text in texts]

    def sample(self, texts: Sequence[str], amount: float, seed: int) -> list[list[int]]:  # noqa: ARG002
        """There is only one way to cut into characters or words."""
        raise HeedfulError(
            f"tokenizer.kind = {self.kind!r} knows no regularisation; set it to 0, or use bpe or unigram"
        )

    def decode(self, rows: Sequence[Sequence[int]]) -> list[str]:
        """The text of every row; UNK is shown as U+2047."""
        silent = {number for number, piece in enumerate(self.listed) if piece in SPECIAL or is_tag(piece)}
        return [
            "".join(
                "\u2047" if number == UNK else self.listed[number] for number in row if number not in silent - {UNK}
            )
            .replace("\u2581", " ")
            .removeprefix(" ")
            for row in rows
        ]

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """What each id stands for."""
        return [self.listed[number] for number in ids]

    def tag(self, name: str) -> int:
        """The id of a tag."""
        if not is_tag(name) or name not in self._ids:
            raise HeedfulError(f"{name} is not a tag of this vocabulary; tags are fixed when it is trained")
        return self._ids[name]

    def save(self, path: Path) -> None:
        """Write the list as JSON."""
        path.write_text(json.dumps({"kind": self.kind, "pieces": self.listed}, ensure_ascii=False), encoding="utf-8")


def characters(text: str) -> list[str]:
    """Text `ein Haus` -> ▁ e i n ▁ H a u s."""
    return ["\u2581", *text.replace(" ", "\u2581")] if text else []


def words(text: str) -> list[str]:
    """Text `ein Haus.` -> ▁ein ▁Haus .        Punctuation is a word of its own; a space stays with what follows it."""
    return _WORD.findall("\u2581" + text.replace(" ", "\u2581")) if text else []


_WORD = re.compile("\u2581?(?:[^\\W\u2581]+|[^\\w\u2581])|\u2581")
CUTS: dict[str, Callable[[str], list[str]]] = {"characters": characters, "words": words}


def is_tag(piece: str) -> bool:
    """Whether a piece is a tag; no piece of text is, as a cut never holds both < and >."""
    return len(piece) > 2 and piece[0] == "<" and piece[-1] == ">"


def train_subwords(
    kind: str, texts: Iterable[str], vocabulary: int, tags: Sequence[str], *, byte_fallback: bool, coverage: float
) -> Subwords:
    """A SentencePiece model of at most `vocabulary` pieces; fewer where the text has no more to give."""
    model = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(texts),
            model_writer=model,
            model_type=kind,
            vocab_size=vocabulary,
            hard_vocab_limit=False,  # unigram: a small text has fewer pieces than one may ask for
            byte_fallback=byte_fallback,
            character_coverage=coverage,
            control_symbols=list(tags),
            pad_id=PAD,
            unk_id=UNK,
            bos_id=BOS,
            eos_id=EOS,
            normalization_rule_name="identity",
            remove_extra_whitespaces=False,
            num_threads=4,  # fixed: unigram sums in an order that depends on it
            minloglevel=2,
        )
    except RuntimeError as error:
        raise HeedfulError(f"a {kind} vocabulary of {vocabulary} pieces cannot be made: {sized(str(error))}") from None
    return Subwords(model.getvalue())


def sized(error: str) -> str:
    """SentencePiece's complaint in our words, where it is the usual one: too large or too small a vocabulary."""
    most = re.search(r"value <= (\d+)", error)
    if most:
        return f"the text is too small for it. Set tokenizer.vocabulary to {most[1]} or less"
    least = re.search(r"required_chars\. (\d+) vs (\d+)", error)
    if least:
        return f"its bytes and characters alone are {least[2]}. Set tokenizer.vocabulary well above that"
    if "!sentences_.empty()" in error:
        return "there is no text"
    return error.strip().splitlines()[-1]


def train_table(kind: str, texts: Iterable[str], vocabulary: int, tags: Sequence[str], **_: Any) -> Table:
    """The most frequent pieces, ties in alphabetical order."""
    counts = Counter(piece for text in texts for piece in CUTS[kind](text))
    kept = sorted(counts, key=lambda piece: (-counts[piece], piece))[: max(0, vocabulary - len(SPECIAL) - len(tags))]
    return Table(kind, [*SPECIAL, *tags, *kept])


TOKENIZERS: dict[str, Callable[..., Tokenizer]] = {
    "bpe": train_subwords,
    "unigram": train_subwords,
    "characters": train_table,
    "words": train_table,
}


def train(
    kind: str,
    texts: Iterable[str],
    vocabulary: int,
    *,
    tags: Sequence[str] = (),
    byte_fallback: bool = True,
    coverage: float = 0.9995,
) -> Tokenizer:
    """A tokenizer for `texts`, which are normalised; the same texts in the same order give the same tokenizer."""
    if kind not in TOKENIZERS:
        raise HeedfulError(f"unknown tokenizer `{kind}`" + did_you_mean(kind, TOKENIZERS))
    return TOKENIZERS[kind](kind, texts, vocabulary, tags, byte_fallback=byte_fallback, coverage=coverage)


def load(path: Path) -> Tokenizer:
    """Read what `save` wrote."""
    data = path.read_bytes()
    if not data.startswith(b'{"kind"'):
        return Subwords(data)
    table = json.loads(data)
    return Table(table["kind"], table["pieces"])
