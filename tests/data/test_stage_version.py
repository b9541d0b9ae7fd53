"""A change of what the stages write must raise STAGE_VERSION, or old and new shards would be mixed."""

import hashlib
import json
from importlib.metadata import version
from pathlib import Path

import pytest

from heedful.config import parse_settings
from heedful.corpus.stages import STAGE_VERSION
from heedful.data.prepare import prepare
from heedful.data.resampling import ResegmentedCorpus

# STAGE_VERSION -> digests of the shards of the corpus below
DIGESTS = {
    3: {
        "bpe": {
            "cut": "8826023ed7e57044",
            "held": "59cfac72e05d7c5f",
            "clean": "416996532cd7f1fb",
            "text": "60c9f081336f36a6",
            "tokens": "cec419b2cc78dd56",
            "epochs": "b86899ef43d14d4c",
        },
        "unigram": {
            "cut": "8826023ed7e57044",
            "held": "59cfac72e05d7c5f",
            "clean": "416996532cd7f1fb",
            "text": "60c9f081336f36a6",
            "tokens": "beb7aaa33e3afa9a",
            "epochs": "3a282ae2b665afcc",
        },
    }
}
SUBJECTS = [
    "The old man",
    "A red house",
    "My dog",
    "The river",
    "Her letter",
    "This bridge",
    "Every child",
    "The bread",
]
SUBJEKTE = [
    "Der alte Mann",
    "Ein rotes Haus",
    "Mein Hund",
    "Der Fluss",
    "Ihr Brief",
    "Diese Brücke",
    "Jedes Kind",
    "Brot",
]
VERBS = ["sees the water", "was here", "is very old", "comes back soon", "needs a stone", "has 2 doors"]
VERBEN = ["sieht das Wasser", "war hier", "ist sehr alt", "kommt bald zurück", "braucht einen Stein", "hat 2 Türen"]
ODD = [  # rejected, dropped by a rule, a duplicate, overlap, normalized
    (b"bro\xffken", b"kaputt"),
    (b"", "leer übersetzt".encode()),
    (b"The same text.", b"The same text."),
    (b"The old man sees the water.", b"Der alte Mann sieht das Wasser."),
    (b"THE DOG IS HELD OUT", b"der hund ist weg"),
    ("A  wide\u200b space and cafe\u0301.".encode(), "Ein weiter Raum und Cafe\u0301.".encode()),
]


def write_corpus(folder: Path) -> None:
    pairs = [
        (f"{subject} {verb}.".encode(), f"{subjekt} {verb_de}.".encode())
        for subject, subjekt in zip(SUBJECTS, SUBJEKTE, strict=True)
        for verb, verb_de in zip(VERBS, VERBEN, strict=True)
    ]
    texts = {"train": pairs + ODD, "valid": [(b"The dog is held out.", b"Der Hund ist weg."), pairs[7]]}
    for name, rows in texts.items():
        for side, language in enumerate(("en", "de")):
            (folder / f"{name}.{language}").write_bytes(b"".join(row[side] + b"\n" for row in rows))


def digest(folder: Path, root: Path) -> str:
    """Of the names and contents of all files but records; rejects name files below the root."""
    whole = hashlib.sha256()
    for path in sorted(path for path in folder.rglob("*") if path.is_file() and path.name != "shard.json"):
        data = path.read_bytes().replace(json.dumps(str(root))[1:-1].encode(), b"")
        whole.update(f"{path.relative_to(folder).as_posix()} {len(data)}\n".encode() + data)
    return whole.hexdigest()[:16]


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_the_stages_write_what_their_version_wrote(tmp_path, kind):
    if not version("sentencepiece").startswith("0.2."):
        pytest.skip("another version of SentencePiece may learn another vocabulary; corpora are prepared again for it")
    write_corpus(tmp_path)
    tree = {
        "source": "en",
        "target": "de",
        "data": {
            "prepared_dir": "prepared",
            "train": [{"files": "train", "tag": "<news>"}],
            "validation": [{"files": "valid"}],
        },
        "clean": {"max_tokens": 40},
        "tokenizer": {"kind": kind, "vocab_size": 330, "shared": kind == "bpe"},
    }
    prepared = prepare(parse_settings(tree, root=tmp_path))
    ResegmentedCorpus(prepared, "train", 0.3, seed=1).epoch(2)
    stages = ("cut", "held", "clean", "text", "tokens", "epochs")
    written = {stage: digest(tmp_path / "prepared" / stage, tmp_path) for stage in stages}
    known = DIGESTS.get(STAGE_VERSION, {}).get(kind, {})
    changed = [stage for stage in stages if written[stage] != known.get(stage)]
    assert not changed, (
        f"the shards in {', '.join(changed)} are not those of STAGE_VERSION {STAGE_VERSION}. If that is meant, raise "
        "STAGE_VERSION in src/heedful/corpus/stages.py, so that all corpora are prepared again, and replace DIGESTS by "
        f"those of the new version; for {kind!r} they are {written}"
    )
