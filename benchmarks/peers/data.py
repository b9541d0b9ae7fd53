"""The corpus of all measurements: Multi30k en-de, tokenized with one shared vocabulary.

    train.en train.de val.en val.de     pieces, separated by spaces
    vocabulary                          one piece per line, in the order of the ids: <pad> <unk> <s> </s>, then 7,996
    spm.model                           the same vocabulary as a SentencePiece model, for heedful

All peers read the same pieces, so tokenizing is not measured.
"""

import gzip
import os
import tempfile
from pathlib import Path

from heedful.text.normalize import normalize
from heedful.text.tokenizer import train

RAW = Path(os.environ.get("HEEDFUL_DATA", "../shared/data")) / "multi30k"


def prepare(into: Path) -> Path:
    """The directory `into`/data, created if it does not exist."""
    made = into / "data"
    if made.exists():
        return made
    texts = {name: sentences(name) for name in ("train.en", "train.de", "val.en", "val.de")}
    tokenizer = train("bpe", texts["train.en"] + texts["train.de"], vocab_size=8_000)
    into.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(dir=into))  # renamed when it is whole
    for name, some in texts.items():
        write(work / name, [" ".join(tokenizer.pieces(row)) for row in tokenizer.encode(some)])
    write(work / "vocabulary", tokenizer.pieces(range(tokenizer.size)))
    tokenizer.save(work / "spm.model")
    return work.rename(made)


def sentences(name: str) -> list[str]:
    with gzip.open(RAW / f"{name}.gz", "rt", encoding="utf-8") as lines:
        return [normalize(line.rstrip("\n"))[0] for line in lines]


def write(path: Path, lines: list[str]) -> None:
    path.write_text("\n".join(lines) + "\n", encoding="utf-8", newline="\n")
