"""Text to token ids and back.

    tokenizer = train("bpe", sentences, vocab_size=8000)
    tokenizer.decode(tokenizer.encode(["ein Haus"])) == ["ein Haus"]        # exact for normalized text

The first ids are the same for every tokenizer: PAD, UNK, BOS, EOS, then one per tag. A tag, such as <2de>, is prepended
to a source as an id; the characters "<2de>" in a text are ordinary text. SentencePiece's own normalization is disabled:
`text/normalize.py` normalizes text and reports the changes.
"""

import io
import json
import re
from base64 import b64decode, b64encode
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, lru_cache
from hashlib import blake2b
from itertools import accumulate
from math import exp, inf
from pathlib import Path
from random import Random
from typing import Any, Protocol

import numpy as np
import sentencepiece

from heedful.errors import HeedfulError, did_you_mean

PAD, UNK, BOS, EOS = range(4)
POOL_SIZE = 16  # sampled segmentations per word; a power of two, so that a byte picks uniformly
MAX_POOLED_WORDS = 1 << 19  # words whose segmentations are cached
SPECIAL = ("<pad>", "<unk>", "<s>", "</s>")  # in the order of their ids


class Tokenizer(Protocol):
    """The interface of every tokenizer."""

    size: int  # of the vocabulary, special tokens and tags included

    def encode(self, texts: Sequence[str], threads: int = 1) -> list[list[int]]:
        """Return the ids of every text, without start and end tokens."""
        ...

    def sample(self, texts: Sequence[str], alpha: float, seed: int) -> list[list[int]]:
        """Return the ids of every text, randomly segmented; the same arguments give the same ids."""
        ...

    def decode(self, rows: Sequence[Sequence[int]]) -> list[str]:
        """Return the text of every row; special tokens and tags are left out."""
        ...

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """Return the piece of each id; a leading U+2581 is a space."""
        ...

    def tag_id(self, name: str) -> int: ...

    def save(self, path: Path) -> None:
        """Write a file for `load`."""
        ...


class SubwordTokenizer:
    """SentencePiece: byte-pair encoding or the unigram language model, with byte fallback.

    Subword regularization: BPE skips each merge with probability `alpha` (BPE-dropout, Provilkov et al. 2020), unigram
    samples a segmentation with probability proportional to P(segmentation) ^ alpha (Kudo 2018). SentencePiece's own
    sampling cannot be seeded across processes, so a run could not be resumed exactly. Here the letters of a word
    determine POOL_SIZE segmentations, and the seed selects one of them; pieces never cross a space.
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
        self._pools: dict[float, dict[str, list[list[int]]]] = {}

    @cached_property
    def is_bpe(self) -> bool:
        """Whether this is byte-pair encoding: its scores are integer ranks, those of unigram log-probabilities."""
        return all(score == int(score) for score in self.scores.values())

    @cached_property
    def scores(self) -> dict[str, float]:
        """Piece -> score of all pieces of text; a higher score means merged earlier, or more likely."""
        excluded = (self._processor.is_control, self._processor.is_byte, self._processor.is_unused)
        ids = [number for number in range(len(SPECIAL), self.size) if not any(test(number) for test in excluded)]
        pieces = {number: self._processor.id_to_piece(number) for number in ids}
        return {piece: self._processor.get_score(number) for number, piece in pieces.items()}

    def encode(self, texts: Sequence[str], threads: int = 1) -> list[list[int]]:
        """Return the ids of every text, in its best segmentation."""
        rows: list[list[int]] = self._processor.encode(list(texts), num_threads=threads)
        return rows

    def sample(self, texts: Sequence[str], alpha: float, seed: int) -> list[list[int]]:
        """Return the ids of every text, one segmentation sampled per word."""
        pools = self._pools.setdefault(alpha, {})
        if len(pools) > MAX_POOLED_WORDS:
            pools.clear()
        words_per_text = [text.split(" ") if text else [] for text in texts]
        raw = np.random.Philox(key=seed).random_raw(sum(map(len, words_per_text)) // 8 + 1)
        picks = iter((raw.astype("<u8").view(np.uint8) % POOL_SIZE).tolist())
        rows = []
        for words_of_text in words_per_text:
            row: list[int] = []
            for word in words_of_text:
                pool = pools.get(word)
                if pool is None:
                    pool = pools[word] = self.sample_segmentations(word, alpha)
                row += pool[next(picks)]
            rows.append(row)
        return rows

    def sample_segmentations(self, word: str, alpha: float) -> list[list[int]]:
        """Return POOL_SIZE random segmentations of a word; the word is the seed."""
        draw = Random(int.from_bytes(blake2b(word.encode(), digest_size=8).digest(), "big")).random
        if self.is_bpe:
            return [
                self.ids_of_pieces(merge_pieces("\u2581" + word, self.scores, alpha, draw)) for _ in range(POOL_SIZE)
            ]
        rows = self._processor.nbest_encode_as_ids(word, 2 * POOL_SIZE) or [[]]
        scores = [sum(self._processor.get_score(number) for number in row) for row in rows]
        weights = [exp(alpha * (score - max(scores))) for score in scores]
        steps = list(accumulate(weights))
        return [rows[min(bisect_right(steps, draw() * steps[-1]), len(rows) - 1)] for _ in range(POOL_SIZE)]

    def ids_of_pieces(self, pieces: Sequence[str]) -> list[int]:
        """Return the id of each piece; an unknown piece becomes its bytes, or UNK."""
        lookup, known = self._processor.piece_to_id, self.scores
        row: list[int] = []
        for piece in pieces:
            spelled = [piece] if piece in known else [f"<0x{byte:02X}>" for byte in piece.encode()]
            row += [lookup(part) for part in spelled] if self.has_byte_fallback or piece in known else [UNK]
        return row

    @cached_property
    def has_byte_fallback(self) -> bool:
        return bool(self._processor.piece_to_id("<0x00>") != UNK)

    def decode(self, rows: Sequence[Sequence[int]]) -> list[str]:
        return [self._processor.decode(list(row)) for row in rows]

    def pieces(self, ids: Sequence[int]) -> list[str]:
        return [self._processor.id_to_piece(number) for number in ids]

    def tag_id(self, name: str) -> int:
        number = self._processor.piece_to_id(name)
        if number == UNK or not self._processor.is_control(number):
            raise HeedfulError(f"{name} is not a tag of this vocabulary; tags are fixed when the vocabulary is trained")
        return int(number)

    def save(self, path: Path) -> None:
        path.write_bytes(self.model)


def merge_pieces(word: str, scores: Mapping[str, float], dropout: float, draw: Callable[[], float]) -> list[str]:
    """Byte-pair encoding: merge the neighbors with the highest score until no merge is possible.

    With dropout p, each possible merge is skipped with probability p, at each step (BPE-dropout).
    """
    pieces = list(word)
    while True:
        best, at = -inf, -1
        for place in range(len(pieces) - 1):
            score = scores.get(pieces[place] + pieces[place + 1])
            if score is not None and score > best and (not dropout or draw() >= dropout):
                best, at = score, place
        if at < 0:
            return pieces
        pieces[at : at + 2] = [pieces[at] + pieces[at + 1]]


class TableTokenizer:
    """A vocabulary of characters or words, for teaching. Other pieces become UNK."""

    def __init__(self, kind: str, vocabulary: Sequence[str]) -> None:
        self.kind, self.vocabulary = kind, tuple(vocabulary)
        self._ids = {piece: number for number, piece in enumerate(self.vocabulary)}
        self._text = {piece for piece in self.vocabulary[len(SPECIAL) :] if not is_tag(piece)}
        self.size = len(self.vocabulary)

    def encode(self, texts: Sequence[str], threads: int = 1) -> list[list[int]]:  # noqa: ARG002  # the same interface as SubwordTokenizer
        split, known = SPLITTERS[self.kind], self._text
        return [[self._ids[piece] if piece in known else UNK for piece in split(text)] for text in texts]

    def sample(self, texts: Sequence[str], alpha: float, seed: int) -> list[list[int]]:  # noqa: ARG002
        """Raise an error: there is only one segmentation into characters or words."""
        raise HeedfulError(
            f"tokenizer.kind = {self.kind!r} does not support subword regularization: set "
            "tokenizer.subword_regularization = 0, or tokenizer.kind = 'bpe' or 'unigram'"
        )

    def decode(self, rows: Sequence[Sequence[int]]) -> list[str]:
        """Return the text of every row; UNK becomes U+2047."""
        return ["".join(self.texts_of_ids[number] for number in row).removeprefix(" ") for row in rows]

    @cached_property
    def texts_of_ids(self) -> list[str]:
        """The text of each id; empty for special tokens and tags."""
        texts = ["" if piece in SPECIAL or is_tag(piece) else piece.replace("\u2581", " ") for piece in self.vocabulary]
        unknown = " \u2047" if self.kind == "fields" else "\u2047"  # a field of its own
        return [*texts[:UNK], unknown, *texts[UNK + 1 :]]

    def pieces(self, ids: Sequence[int]) -> list[str]:
        return [self.vocabulary[number] for number in ids]

    def tag_id(self, name: str) -> int:
        if not is_tag(name) or name not in self._ids:
            raise HeedfulError(f"{name} is not a tag of this vocabulary; tags are fixed when the vocabulary is trained")
        return self._ids[name]

    def save(self, path: Path) -> None:
        path.write_text(
            json.dumps({"kind": self.kind, "pieces": self.vocabulary}, ensure_ascii=False), encoding="utf-8"
        )


class BorrowedTokenizer:
    """The tokenizer of an imported model: a SentencePiece model that segments, and a vocabulary with the ids.

    The vocabulary may have pieces that the model never uses (one vocabulary for two languages). Pieces that it lacks
    become UNK. `order[n]` is heedful's id of the imported id n.
    """

    kind = "borrowed"

    def __init__(self, model: bytes, vocabulary: Sequence[str], order: Sequence[int] = ()) -> None:
        try:
            self._processor = sentencepiece.SentencePieceProcessor(model_proto=model)
        except RuntimeError as error:
            raise HeedfulError(f"this is not a SentencePiece model: {error}") from None
        if not model:
            raise HeedfulError("this is not a SentencePiece model: it is empty")
        self.model, self.vocabulary, self.order = model, tuple(vocabulary), tuple(order)
        if len(set(self.order)) < len(self.order) or not set(self.order) <= set(range(len(self.vocabulary))):
            raise HeedfulError("the order of an imported vocabulary lists a piece twice, or one that does not exist")
        ids = {piece: number for number, piece in enumerate(self.vocabulary)}
        self._tags = {piece: ids[piece] for piece in ids if piece.startswith(">>") and piece.endswith("<<")}
        for token in (*SPECIAL, *self._tags):
            ids.pop(token, None)
        pieces = map(self._processor.id_to_piece, range(len(self._processor)))
        self._ids = [ids.get(piece, UNK) for piece in pieces]  # by the ids of the SentencePiece model
        self._ids_without_text = {*range(len(SPECIAL)), *self._tags.values()} - {UNK}
        self.size = len(self.vocabulary)

    def encode(self, texts: Sequence[str], threads: int = 1) -> list[list[int]]:
        """Return the ids of every text; a leading tag becomes a token."""
        tags = [text[: text.find("<<") + 2] if text.startswith(">>") else "" for text in texts]
        tag_ids = [[self._tags[tag]] if tag in self._tags else [] for tag in tags]
        rest = [text[len(tag) :] if ids else text for text, tag, ids in zip(texts, tags, tag_ids, strict=True)]
        rows = self._processor.encode(rest, num_threads=threads)
        return [[*ids, *(self._ids[number] for number in row)] for ids, row in zip(tag_ids, rows, strict=True)]

    def sample(self, texts: Sequence[str], alpha: float, seed: int) -> list[list[int]]:  # noqa: ARG002
        """Raise an error: the model was trained with one segmentation."""
        raise HeedfulError(
            "the tokenizer of an imported model does not support subword regularization: set "
            "tokenizer.subword_regularization = 0"
        )

    def decode(self, rows: Sequence[Sequence[int]]) -> list[str]:
        """Return the text of every row; UNK becomes U+2047."""
        return [
            self._processor.decode_pieces(self.pieces([n for n in row if n not in self._ids_without_text]))
            for row in rows
        ]

    def pieces(self, ids: Sequence[int]) -> list[str]:
        return [self.vocabulary[number] for number in ids]

    def tag_id(self, name: str) -> int:
        """Return the id of a tag, which is written >>like this<<."""
        if name not in self._tags:
            raise HeedfulError(f"{name} is not a tag of this vocabulary" + did_you_mean(name, self._tags))
        return self._tags[name]

    def save(self, path: Path) -> None:
        tree = {
            "kind": self.kind,
            "pieces": self.vocabulary,
            "order": self.order,
            "model": b64encode(self.model).decode(),
        }
        path.write_text(json.dumps(tree, ensure_ascii=False), encoding="utf-8")


def split_characters(text: str) -> list[str]:
    """Split `ein Haus` into ▁ e i n ▁ H a u s."""
    return ["\u2581", *text.replace(" ", "\u2581")] if text else []


def split_words(text: str) -> list[str]:
    """Split `ein Haus.` into ▁ein ▁Haus . (punctuation is a word; a space belongs to the next word)."""
    return _WORD.findall("\u2581" + text.replace(" ", "\u2581")) if text else []


def split_label(text: str) -> list[str]:
    """One piece: `very good` is ▁very▁good."""
    return ["\u2581" + text.replace(" ", "\u2581")] if text else []


def split_fields(text: str) -> list[str]:
    """Split `don't stop!` into ▁don't ▁stop! at spaces only."""
    return ["\u2581" + field for field in text.split(" ")] if text else []


UNKNOWN_LABEL = "\u2581?"  # of a slot: it is never learned, so it is not in a vocabulary
_WORD = re.compile("\u2581?(?:[^\\W\u2581]+|[^\\w\u2581])|\u2581")
SPLITTERS: dict[str, Callable[[str], list[str]]] = {
    "characters": split_characters,
    "words": split_words,
    "letters": list,
    "label": split_label,
    "fields": split_fields,
}
JSON_KINDS = (*SPLITTERS, BorrowedTokenizer.kind)  # kinds that are saved as JSON


def is_tag(piece: str) -> bool:
    """Return whether a piece is a tag; pieces of text never contain both < and >."""
    return len(piece) > 2 and piece[0] == "<" and piece[-1] == ">"


def own_ids_of_foreign(tokenizer: Tokenizer) -> Sequence[int]:
    """Return heedful's id of each foreign id; they differ only for borrowed vocabularies."""
    return tokenizer.order if isinstance(tokenizer, BorrowedTokenizer) and tokenizer.order else range(tokenizer.size)


def train_subwords(
    kind: str,
    texts: Iterable[str],
    vocab_size: int,
    tags: Sequence[str],
    *,
    byte_fallback: bool,
    character_coverage: float,
) -> SubwordTokenizer:
    """Train a SentencePiece model with at most `vocab_size` pieces."""
    model, errors = io.BytesIO(), list[BaseException]()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=_collect_errors(texts, errors),
            model_writer=model,
            model_type=kind,
            vocab_size=vocab_size,
            hard_vocab_limit=False,  # unigram: a small text may have fewer pieces
            byte_fallback=byte_fallback,
            character_coverage=character_coverage,
            control_symbols=list(tags),
            pad_id=PAD,
            unk_id=UNK,
            bos_id=BOS,
            eos_id=EOS,
            normalization_rule_name="identity",
            remove_extra_whitespaces=False,
            num_threads=4,  # fixed: unigram's rounding depends on it
            minloglevel=2,
        )
    except RuntimeError as error:
        if errors:
            raise errors[0] from None
        raise HeedfulError(
            f"a {kind} vocabulary of {vocab_size} pieces cannot be trained: {explain_size_error(str(error))}"
        ) from None
    return SubwordTokenizer(model.getvalue())


def _collect_errors(texts: Iterable[str], errors: list[BaseException]) -> Iterator[str]:
    """Yield the texts and collect errors (Ctrl-C, a disk), which SentencePiece turns into a RuntimeError."""
    try:
        yield from texts
    except (Exception, KeyboardInterrupt, SystemExit) as error:
        errors.append(error)
        raise


def explain_size_error(error: str) -> str:
    """Explain SentencePiece's error about a vocabulary that is too large or too small."""
    if upper := re.search(r"value <= (\d+)", error):
        return f"the text is too small. Set tokenizer.vocab_size to {upper[1]} or less"
    if lower := re.search(r"required_chars\. (\d+) vs (\d+)", error):
        return f"the bytes and characters alone need {lower[2]} pieces. Set tokenizer.vocab_size well above {lower[2]}"
    if "!sentences_.empty()" in error:
        return "there is no text"
    return error.strip().splitlines()[-1]


def train_table(kind: str, texts: Iterable[str], vocab_size: int, tags: Sequence[str], **_: Any) -> TableTokenizer:
    """Make a table of the most frequent pieces; ties are in alphabetical order."""
    counts = Counter(piece for text in texts for piece in SPLITTERS[kind](text))
    kept = sorted(counts, key=lambda piece: (-counts[piece], piece))[: max(0, vocab_size - len(SPECIAL) - len(tags))]
    return TableTokenizer(kind, [*SPECIAL, *tags, *kept])


def train_labels(kind: str, texts: Iterable[str]) -> TableTokenizer:
    """Make a table of all labels, in alphabetical order."""
    labels = {piece for text in texts for piece in SPLITTERS[kind](text)} - {UNKNOWN_LABEL}
    return TableTokenizer(kind, [*SPECIAL, *sorted(labels)])


TOKENIZERS: dict[str, Callable[..., Tokenizer]] = {
    "bpe": train_subwords,
    "unigram": train_subwords,
    "characters": train_table,
    "words": train_table,
    "fields": train_table,
}


def train(
    kind: str,
    texts: Iterable[str],
    vocab_size: int,
    *,
    tags: Sequence[str] = (),
    byte_fallback: bool = True,
    character_coverage: float = 0.9995,
) -> Tokenizer:
    """Train a tokenizer on normalized texts; deterministic for the same texts in the same order."""
    if kind not in TOKENIZERS:
        raise HeedfulError(f"unknown tokenizer `{kind}`" + did_you_mean(kind, TOKENIZERS))
    return TOKENIZERS[kind](
        kind, texts, vocab_size, tags, byte_fallback=byte_fallback, character_coverage=character_coverage
    )


def load(path: Path) -> Tokenizer:
    """Load a tokenizer from the file that `save` wrote."""
    return _parse(path.read_bytes())


@lru_cache(maxsize=4)  # by content: both sides of a shared vocabulary share one object and its cache
def _parse(data: bytes) -> Tokenizer:
    if not data.startswith(b'{"kind"'):
        return SubwordTokenizer(data)
    table = json.loads(data)
    if table["kind"] == BorrowedTokenizer.kind:
        return BorrowedTokenizer(b64decode(table["model"], validate=True), table["pieces"], table["order"])
    return TableTokenizer(table["kind"], table["pieces"])
