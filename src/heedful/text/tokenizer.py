"""Text to token ids and back.

    tokenizer = train("bpe", sentences, vocab_size=8000)
    tokenizer.decode(tokenizer.encode(["ein Haus"])) == ["ein Haus"]        # exact for normalized text

The first ids are the same for every tokenizer: PAD, UNK, BOS, EOS, then one per tag. A tag, such as <2de>, is put
before a source by its id; text that happens to spell it stays text. Of SentencePiece we switch off everything that
changes text: normalization is ours (`text/normalize.py`), so that what was removed can be said.
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
POOL = 16  # segmentations of a word to pick from; a power of two, so that a byte picks evenly
MOST_POOLS = 1 << 19  # words whose segmentations are remembered
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

    def tag_id(self, name: str) -> int:
        """The id of a tag."""
        ...

    def save(self, path: Path) -> None:
        """Write the one file that `load` reads."""
        ...


class Subwords:
    """SentencePiece: byte-pair encoding or the unigram language model, with bytes for what has no piece.

    Regularized, BPE leaves out each merge with probability `amount` (BPE-dropout, Provilkov et al. 2020), unigram draws
    a segmentation with probability proportional to P(segmentation) ^ amount (Kudo 2018). SentencePiece's own sampling
    gives other pieces in every process, whatever the seed, so a run could not be resumed exactly. Ours: words never
    share a piece, so each word gets POOL segmentations, drawn once and for all by its letters, and a draw picks among
    them by the seed.
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
        """Whether this is byte-pair encoding, whose scores are ranks; unigram's are logarithms of probabilities."""
        return all(score == int(score) for score in self.scores.values())

    @cached_property
    def scores(self) -> dict[str, float]:
        """Of every piece that text can be cut into, the higher the earlier merged or the likelier."""
        every = range(len(SPECIAL), self.size)
        odd = (self._processor.is_control, self._processor.is_byte, self._processor.is_unused)
        pieces = {number: self._processor.id_to_piece(number) for number in every if not any(f(number) for f in odd)}
        return {piece: self._processor.get_score(number) for number, piece in pieces.items()}

    def encode(self, texts: Sequence[str], threads: int = 1) -> list[list[int]]:
        """Ids of every text, the best segmentation."""
        rows: list[list[int]] = self._processor.encode(list(texts), num_threads=threads)
        return rows

    def sample(self, texts: Sequence[str], amount: float, seed: int) -> list[list[int]]:
        """Ids of every text, one segmentation drawn for every word."""
        pools = self._pools.setdefault(amount, {})
        if len(pools) > MOST_POOLS:
            pools.clear()
        words_of = [text.split(" ") if text else [] for text in texts]
        raw = np.random.Philox(key=seed).random_raw(sum(map(len, words_of)) // 8 + 1)
        picks = iter((raw.astype("<u8").view(np.uint8) % POOL).tolist())
        rows = []
        for some in words_of:
            row: list[int] = []
            for word in some:
                pool = pools.get(word)
                if pool is None:
                    pool = pools[word] = self.pool(word, amount)
                row += pool[next(picks)]
            rows.append(row)
        return rows

    def pool(self, word: str, amount: float) -> list[list[int]]:
        """The segmentations of a word: a function of its letters."""
        draw = Random(int.from_bytes(blake2b(word.encode(), digest_size=8).digest(), "big")).random
        if self.is_bpe:
            return [self.ids(merged("\u2581" + word, self.scores, amount, draw)) for _ in range(POOL)]
        rows = self._processor.nbest_encode_as_ids(word, 2 * POOL) or [[]]
        scores = [sum(self._processor.get_score(number) for number in row) for row in rows]
        weights = [exp(amount * (score - max(scores))) for score in scores]
        steps = list(accumulate(weights))
        return [rows[min(bisect_right(steps, draw() * steps[-1]), len(rows) - 1)] for _ in range(POOL)]

    def ids(self, pieces: Sequence[str]) -> list[int]:
        """The id of each piece; of one that is not listed, those of its bytes, or UNK."""
        lookup, known = self._processor.piece_to_id, self.scores
        row: list[int] = []
        for piece in pieces:
            spelled = [piece] if piece in known else [f"<0x{byte:02X}>" for byte in piece.encode()]
            row += [lookup(part) for part in spelled] if self.spells or piece in known else [UNK]
        return row

    @cached_property
    def spells(self) -> bool:
        """Whether it has bytes to fall back on."""
        return bool(self._processor.piece_to_id("<0x00>") != UNK)

    def decode(self, rows: Sequence[Sequence[int]]) -> list[str]:
        """The text of every row."""
        return [self._processor.decode(list(row)) for row in rows]

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """What each id stands for."""
        return [self._processor.id_to_piece(number) for number in ids]

    def tag_id(self, name: str) -> int:
        """The id of a tag."""
        number = self._processor.piece_to_id(name)
        if number == UNK or not self._processor.is_control(number):
            raise HeedfulError(f"{name} is not a tag of this vocabulary; tags are fixed when it is trained")
        return int(number)

    def save(self, path: Path) -> None:
        """Write the SentencePiece model."""
        path.write_bytes(self.model)


def merged(word: str, scores: Mapping[str, float], dropout: float, draw: Callable[[], float]) -> list[str]:
    """Merge the neighbors whose union has the highest score, again and again; each time, each may be left out.

    dropout = 0: byte-pair encoding.        dropout = p: of all merges that are possible now, each is ignored with
    probability p; when none is left, the word is done.
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
            f"tokenizer.kind = {self.kind!r} knows no regularization; set it to 0, or use bpe or unigram"
        )

    def decode(self, rows: Sequence[Sequence[int]]) -> list[str]:
        """The text of every row; UNK is shown as U+2047."""
        return ["".join(self.said[number] for number in row).removeprefix(" ") for row in rows]

    @cached_property
    def said(self) -> list[str]:
        """What each id says; special tokens and tags say nothing."""
        silent = [piece in SPECIAL or is_tag(piece) for piece in self.listed]
        texts = ["" if mute else piece.replace("\u2581", " ") for piece, mute in zip(self.listed, silent, strict=True)]
        return [*texts[:UNK], "\u2047", *texts[UNK + 1 :]]

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """What each id stands for."""
        return [self.listed[number] for number in ids]

    def tag_id(self, name: str) -> int:
        """The id of a tag."""
        if not is_tag(name) or name not in self._ids:
            raise HeedfulError(f"{name} is not a tag of this vocabulary; tags are fixed when it is trained")
        return self._ids[name]

    def save(self, path: Path) -> None:
        """Write the list as JSON."""
        path.write_text(json.dumps({"kind": self.kind, "pieces": self.listed}, ensure_ascii=False), encoding="utf-8")


class Borrowed:
    """Somebody else's SentencePiece model, which cuts, and their list of pieces, which gives the ids.

    The list may hold pieces that this model never cuts (one list for two languages), and lack some that it does, which
    are unknown. Theirs has an order of its own: `order[n]` is the id here of what is number n there.
    """

    kind = "borrowed"

    def __init__(self, model: bytes, listed: Sequence[str], order: Sequence[int] = ()) -> None:
        try:
            self._processor = sentencepiece.SentencePieceProcessor(model_proto=model)
        except RuntimeError as error:
            raise HeedfulError(f"this is not a SentencePiece model: {error}") from None
        if not model:
            raise HeedfulError("this is not a SentencePiece model: it is empty")
        self.model, self.listed, self.order = model, tuple(listed), tuple(order)
        if len(set(self.order)) < len(self.order) or not set(self.order) <= set(range(len(self.listed))):
            raise HeedfulError("the order of a borrowed list names each of its pieces once at most")
        ids = {piece: number for number, piece in enumerate(self.listed)}
        self._tags = {piece: ids[piece] for piece in ids if piece.startswith(">>") and piece.endswith("<<")}
        for silent in (*SPECIAL, *self._tags):
            ids.pop(silent, None)
        cuts = map(self._processor.id_to_piece, range(len(self._processor)))
        self._ids = [ids.get(piece, UNK) for piece in cuts]  # of each of its own numbers
        self._silent = {*range(len(SPECIAL)), *self._tags.values()} - {UNK}
        self.size = len(self.listed)

    def encode(self, texts: Sequence[str], threads: int = 1) -> list[list[int]]:
        """Ids of every text; one that begins with a tag has it as a token."""
        tags = [text[: text.find("<<") + 2] if text.startswith(">>") else "" for text in texts]
        first = [[self._tags[tag]] if tag in self._tags else [] for tag in tags]
        rest = [text[len(tag) :] if some else text for text, tag, some in zip(texts, tags, first, strict=True)]
        rows = self._processor.encode(rest, num_threads=threads)
        return [[*some, *(self._ids[number] for number in row)] for some, row in zip(first, rows, strict=True)]

    def sample(self, texts: Sequence[str], amount: float, seed: int) -> list[list[int]]:  # noqa: ARG002
        """It was trained with one way to cut."""
        raise HeedfulError("a borrowed tokenizer knows no regularization; set tokenizer.subword_regularization to 0")

    def decode(self, rows: Sequence[Sequence[int]]) -> list[str]:
        """The text of every row; UNK is shown as U+2047."""
        return [self._processor.decode_pieces(self.pieces([n for n in row if n not in self._silent])) for row in rows]

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """What each id stands for."""
        return [self.listed[number] for number in ids]

    def tag_id(self, name: str) -> int:
        """The id of a tag, which is written >>like this<< in their lists."""
        if name not in self._tags:
            raise HeedfulError(f"{name} is not a tag of this vocabulary" + did_you_mean(name, self._tags))
        return self._tags[name]

    def save(self, path: Path) -> None:
        """Write model and list as JSON."""
        tree = {"kind": self.kind, "pieces": self.listed, "order": self.order, "model": b64encode(self.model).decode()}
        path.write_text(json.dumps(tree, ensure_ascii=False), encoding="utf-8")


def characters(text: str) -> list[str]:
    """Text `ein Haus` -> ▁ e i n ▁ H a u s."""
    return ["\u2581", *text.replace(" ", "\u2581")] if text else []


def words(text: str) -> list[str]:
    """Text `ein Haus.` -> ▁ein ▁Haus .        Punctuation is a word of its own; a space stays with what follows it."""
    return _WORD.findall("\u2581" + text.replace(" ", "\u2581")) if text else []


_WORD = re.compile("\u2581?(?:[^\\W\u2581]+|[^\\w\u2581])|\u2581")
CUTS: dict[str, Callable[[str], list[str]]] = {"characters": characters, "words": words, "letters": list}
LISTED = (*CUTS, Borrowed.kind)  # kinds whose file is a list of pieces


def is_tag(piece: str) -> bool:
    """Whether a piece is a tag; no piece of text is, as a cut never holds both < and >."""
    return len(piece) > 2 and piece[0] == "<" and piece[-1] == ">"


def order_of(tokenizer: Tokenizer) -> Sequence[int]:
    """Our id of each of the numbers that others know: a borrowed list has an order of its own."""
    return tokenizer.order if isinstance(tokenizer, Borrowed) and tokenizer.order else range(tokenizer.size)


def train_subwords(
    kind: str,
    texts: Iterable[str],
    vocab_size: int,
    tags: Sequence[str],
    *,
    byte_fallback: bool,
    character_coverage: float,
) -> Subwords:
    """A SentencePiece model of at most `vocab_size` pieces; fewer where the text has no more to give."""
    model, failed = io.BytesIO(), list[BaseException]()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=_watched(texts, failed),
            model_writer=model,
            model_type=kind,
            vocab_size=vocab_size,
            hard_vocab_limit=False,  # unigram: a small text has fewer pieces than one may ask for
            byte_fallback=byte_fallback,
            character_coverage=character_coverage,
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
        if failed:
            raise failed[0] from None
        raise HeedfulError(f"a {kind} vocabulary of {vocab_size} pieces cannot be made: {sized(str(error))}") from None
    return Subwords(model.getvalue())


def _watched(texts: Iterable[str], failed: list[BaseException]) -> Iterator[str]:
    """The texts; what stops them (Ctrl-C, a disk) is kept, as SentencePiece would make a RuntimeError of it."""
    try:
        yield from texts
    except (Exception, KeyboardInterrupt, SystemExit) as error:
        failed.append(error)
        raise


def sized(error: str) -> str:
    """SentencePiece's complaint in our words, where it is the usual one: too large or too small a vocabulary."""
    most = re.search(r"value <= (\d+)", error)
    if most:
        return f"the text is too small for it. Set tokenizer.vocab_size to {most[1]} or less"
    least = re.search(r"required_chars\. (\d+) vs (\d+)", error)
    if least:
        return f"its bytes and characters alone are {least[2]}. Set tokenizer.vocab_size well above that"
    if "!sentences_.empty()" in error:
        return "there is no text"
    return error.strip().splitlines()[-1]


def train_table(kind: str, texts: Iterable[str], vocab_size: int, tags: Sequence[str], **_: Any) -> Table:
    """The most frequent pieces, ties in alphabetical order."""
    counts = Counter(piece for text in texts for piece in CUTS[kind](text))
    kept = sorted(counts, key=lambda piece: (-counts[piece], piece))[: max(0, vocab_size - len(SPECIAL) - len(tags))]
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
    vocab_size: int,
    *,
    tags: Sequence[str] = (),
    byte_fallback: bool = True,
    character_coverage: float = 0.9995,
) -> Tokenizer:
    """A tokenizer for `texts`, which are normalized; the same texts in the same order give the same tokenizer."""
    if kind not in TOKENIZERS:
        raise HeedfulError(f"unknown tokenizer `{kind}`" + did_you_mean(kind, TOKENIZERS))
    return TOKENIZERS[kind](
        kind, texts, vocab_size, tags, byte_fallback=byte_fallback, character_coverage=character_coverage
    )


def load(path: Path) -> Tokenizer:
    """Read what `save` wrote."""
    return _loaded(path.read_bytes())


@lru_cache(maxsize=4)  # by content: both sides of a shared vocabulary are one, and its pools of segmentations last
def _loaded(data: bytes) -> Tokenizer:
    if not data.startswith(b'{"kind"'):
        return Subwords(data)
    table = json.loads(data)
    if table["kind"] == Borrowed.kind:
        return Borrowed(b64decode(table["model"], validate=True), table["pieces"], table["order"])
    return Table(table["kind"], table["pieces"])
