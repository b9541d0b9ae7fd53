"""From files to tokens: nothing lost or mixed up, the same bytes whoever does it, resumed by repeating."""

import gzip
import hashlib
import json
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import heedful
from heedful.config import parse_settings
from heedful.corpus import stages
from heedful.corpus.filters import keep_letters
from heedful.corpus.launchers import LocalLauncher
from heedful.corpus.stages import bucket_of, hash_pairs
from heedful.data.plan import BLOCK_ROWS, Plan
from heedful.data.prepare import prepare
from heedful.data.resampling import ResegmentedCorpus
from heedful.data.store import StoredCorpus, open_prepared, write_tokens
from heedful.errors import ConfigError, DataError

WORDS = ["house", "dog", "man", "woman", "child", "tree", "river", "bread", "water", "stone", "bridge", "letter", "old"]
WORTE = ["Haus", "Hund", "Mann", "Frau", "Kind", "Baum", "Fluss", "Brot", "Wasser", "Stein", "Brücke", "Brief", "alt"]


def made_pairs(count: int, seed: int = 0) -> list[tuple[str, str]]:
    """Sentences whose translations are known word by word, each with its number."""
    choices = np.random.default_rng(seed).integers(0, len(WORDS), (count, 6))
    return [
        (f"The {' '.join(WORDS[at] for at in row)} {number}.", f"Die {' '.join(WORTE[at] for at in row)} {number}.")
        for number, row in enumerate(choices)
    ]


def write(folder: Path, name: str, pairs: list[tuple[str, str]]) -> str:
    for side, code in enumerate(("en", "de")):
        (folder / f"{name}.{code}").write_text(
            "".join(pair[side] + "\n" for pair in pairs), encoding="utf-8", newline="\n"
        )
    return str(folder / name)


def settings_for(folder: Path, **changes):
    tree = {
        "source": "en",
        "target": "de",
        "data": {"prepared_dir": str(folder / "prepared"), "train": [{"files": str(folder / "train")}]},
        "tokenizer": {"vocab_size": 400, "character_coverage": 1.0},
    }
    for key, value in changes.items():
        tree.setdefault(key, {})
        tree[key] = tree[key] | value if isinstance(value, dict) else value
    return parse_settings(tree)


def contents(folder: Path) -> dict[str, str]:
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != "settings.toml"
    }


def decoded(prepared, stored: StoredCorpus) -> list[tuple[int, str, str]]:
    sides = [prepared.tokenizer(side) for side in ("source", "target")]
    rows = range(stored.num_rows)
    texts = [
        tokenizer.decode([pair[number].tolist() for pair in stored.pairs(rows)])
        for number, tokenizer in enumerate(sides)
    ]
    return list(zip(stored.line_numbers(rows), *texts, strict=True))


@pytest.fixture
def small_pieces(monkeypatch):
    """Many pieces and buckets, as of a large corpus."""
    monkeypatch.setattr(stages, "MIN_PIECE_BYTES", 4_096)
    monkeypatch.setattr(stages, "SLICE_BYTES", 64)


def test_every_pair_arrives_once_and_whole(tmp_path, small_pieces):
    pairs = made_pairs(900)
    write(tmp_path, "train", pairs)
    prepared = heedful.prepare(settings_for(tmp_path))
    (stored,) = prepared.train
    assert len(stored.folders) > 10
    found = decoded(prepared, stored)
    assert sorted(found) == [(number + 1, *pair) for number, pair in enumerate(pairs)]
    assert [line for line, _, _ in found] != sorted(line for line, _, _ in found)  # shuffled
    keys = [hash_pairs([f"{source}\n{target}\n".encode()]) for _, source, target in found]
    assert keys == sorted(keys)  # by hash


def test_the_result_does_not_depend_on_workers_or_pieces_of_work(tmp_path, small_pieces):
    write(tmp_path, "train", made_pairs(700))
    write(tmp_path, "valid", made_pairs(50, seed=9))
    results = []
    for workers in (1, 2):
        folder = tmp_path / f"{workers}"
        data = {"prepared_dir": str(folder), "validation": [{"files": str(tmp_path / "valid")}]}
        data["train"] = [{"files": str(tmp_path / "train")}]
        prepare(settings_for(tmp_path, data=data), launcher=LocalLauncher(workers))
        results.append(contents(folder))
    assert results[0] == results[1]


def test_duplicates_go_also_across_pieces_and_corpora(tmp_path, small_pieces):
    pairs = made_pairs(300)
    write(tmp_path, "train", pairs + pairs[:100])
    write(tmp_path, "more", [*pairs[250:], *((f"new {one}", f"neu {two}") for one, two in pairs[:20])])
    data = {"train": [{"files": str(tmp_path / "train"), "name": "a"}, {"files": str(tmp_path / "more"), "name": "b"}]}
    data["prepared_dir"] = str(tmp_path / "prepared")
    prepared = prepare(settings_for(tmp_path, data=data))
    first, second = prepared.train
    assert sorted(line for line, _, _ in decoded(prepared, first)) == list(range(1, 301))  # of equal pairs the first
    assert sorted(line for line, _, _ in decoded(prepared, second)) == list(range(51, 71))
    assert prepared.manifest["counts"]["duplicates"] == 150
    kept = prepare(settings_for(tmp_path, data=data, clean={"duplicates": "keep"}))
    assert [stored.num_rows for stored in kept.train] == [400, 70]


@pytest.mark.parametrize(("mode", "left"), [("pair", 90), ("either", 80), ("keep", 100)])
def test_what_validation_has_is_not_trained_on(tmp_path, mode, left):
    pairs = made_pairs(100)
    held = [(one.upper() + " !", two.replace(" ", "  ")) for one, two in pairs[:10]]  # other case and spacing
    held += [(one, f"anders {number}") for number, (one, _) in enumerate(pairs[10:20])]  # another translation
    write(tmp_path, "train", pairs)
    write(tmp_path, "valid", held)
    data = {"prepared_dir": str(tmp_path / "prepared"), "train": [{"files": str(tmp_path / "train")}]}
    data["validation"] = [{"files": str(tmp_path / "valid")}]
    prepared = prepare(settings_for(tmp_path, data=data, clean={"overlap": mode}))
    assert prepared.train[0].num_rows == left
    (validation,) = prepared.split("validation")
    assert validation.line_numbers(range(20)) == list(range(1, 21))  # in order, all of it


def test_what_is_left_out_is_listed(tmp_path):
    pairs = made_pairs(200)
    pairs[10], pairs[20] = ("", "etwas"), ("The same.", "The same.")
    write(tmp_path, "train", pairs)
    path = tmp_path / "train.en"
    lines = path.read_bytes().split(b"\n")
    lines[30] = b"bro\xffken"
    path.write_bytes(b"\n".join(lines))
    prepared = prepare(settings_for(tmp_path))
    listed = [json.loads(line) for line in (tmp_path / "prepared" / "rejects.jsonl").read_text("utf-8").splitlines()]
    assert {(row["line"], row["reason"]) for row in listed} == {
        (11, "empty"),
        (21, "copy"),
        (31, "not UTF-8 at byte 4"),
    }
    assert all(Path(row["file"]).name == "train.en" for row in listed)
    assert prepared.train[0].num_rows == 197


def test_repeating_does_nothing_and_a_change_redoes_what_depends_on_it(tmp_path, small_pieces):
    write(tmp_path, "train", made_pairs(300))
    settings = settings_for(tmp_path)
    prepare(settings)
    folder = tmp_path / "prepared"
    times = {path: path.stat().st_mtime_ns for path in folder.rglob("*.npy")}
    before = contents(folder)
    prepare(settings)
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*.npy")} == times
    other = prepare(settings_for(tmp_path, tokenizer={"vocab_size": 350, "character_coverage": 1.0}))
    assert other.tokenizer("source").size == 350
    kept = {path for path, time in times.items() if path.stat().st_mtime_ns == time}
    assert any("text" in path.parts for path in kept)
    assert not any("tokens" in path.parts for path in kept)
    prepare(settings)
    assert contents(folder) == before
    shutil.rmtree(folder / "tokens" / "00000")
    prepare(settings)
    assert contents(folder) == before


def test_another_corpus_leaves_nothing_of_the_old_one(tmp_path, small_pieces):
    write(tmp_path, "train", made_pairs(400))
    prepare(settings_for(tmp_path))
    write(tmp_path, "train", made_pairs(60, seed=3))
    prepare(settings_for(tmp_path))
    fresh = tmp_path / "fresh"
    data = {"prepared_dir": str(fresh), "train": [{"files": str(tmp_path / "train")}]}
    prepare(settings_for(tmp_path, data=data))
    assert contents(tmp_path / "prepared") == contents(fresh)


def test_weights_are_those_of_the_configuration(tmp_path):
    write(tmp_path, "train", made_pairs(40))
    write(tmp_path, "more", made_pairs(40, seed=3))
    data = {"prepared_dir": str(tmp_path / "prepared")}
    for weights in ((3.0, 1.0), (None, None)):
        pairs = zip(("train", "more"), weights, strict=True)
        data["train"] = [{"files": str(tmp_path / name), "name": name, "weight": weight} for name, weight in pairs]
        prepared = prepare(settings_for(tmp_path, data=data))
        assert prepared.corpus_weights == (None if weights[0] is None else list(weights))


def test_a_tag_comes_first(tmp_path):
    write(tmp_path, "train", made_pairs(50))
    data = {"prepared_dir": str(tmp_path / "prepared"), "train": [{"files": str(tmp_path / "train"), "tag": "<news>"}]}
    prepared = prepare(settings_for(tmp_path, data=data))
    tag = prepared.tokenizer("source").tag_id("<news>")
    assert all(source[0] == tag and tag not in target for source, target in prepared.train[0].pairs(range(50)))


@pytest.mark.parametrize("kind", ["bpe", "unigram", "characters", "words"])
@pytest.mark.parametrize("shared", [True, False])
def test_every_tokenizer(tmp_path, kind, shared):
    pairs = made_pairs(150)
    write(tmp_path, "train", pairs)
    chosen = {"kind": kind, "shared": shared, "vocab_size": 600, "character_coverage": 1.0}
    prepared = prepare(settings_for(tmp_path, tokenizer=chosen))
    assert sorted(decoded(prepared, prepared.train[0])) == [(number + 1, *pair) for number, pair in enumerate(pairs)]
    models = [(tmp_path / "prepared" / "vocabulary" / f"{side}.model").read_bytes() for side in ("source", "target")]
    assert (models[0] == models[1]) == shared


def test_ids_take_the_room_they_need(tmp_path):
    write_tokens(tmp_path, "a", [[1, 2], [], [65_535]], vocab_size=65_536)
    write_tokens(tmp_path, "b", [[70_000]], vocab_size=70_001)
    assert np.load(tmp_path / "a.npy").dtype == np.uint16
    assert np.load(tmp_path / "a.begin.npy").tolist() == [0, 2, 2, 3]
    assert np.load(tmp_path / "b.npy").tolist() == [70_000]


def test_long_pairs_are_left_out_after_tokenizing(tmp_path):
    pairs = made_pairs(80)
    pairs[5] = (" ".join(["xyzzy"] * 60), " ".join(["Zwiebelkuchen"] * 60))
    write(tmp_path, "train", pairs)
    prepared = prepare(settings_for(tmp_path, clean={"max_tokens": 32}))
    assert prepared.manifest["counts"]["dropped.long_tokens"] == 1
    assert 6 not in prepared.train[0].line_numbers(range(prepared.train[0].num_rows))


def test_batches_of_a_prepared_corpus(tmp_path, small_pieces):
    write(tmp_path, "train", made_pairs(500))
    prepared = prepare(settings_for(tmp_path))
    (stored,) = prepared.train
    plan = Plan([stored], seed=1, batch_tokens=256)
    total = int(stored.micro_batches_per_block(0, 256).sum())
    rows = np.concatenate([plan.batch(step)[0].rows for step in range(total)])
    assert sorted(rows.tolist()) == list(range(500))
    lengths = [(len(source) + 1, len(target) + 1) for source, target in stored.pairs(range(500))]
    assert [pair.tolist() for pair in stored.block_lengths(0, 0)] == [list(side) for side in zip(*lengths, strict=True)]
    assert list((tmp_path / "prepared" / "plan").glob("*.npy"))  # counted once
    assert stored.num_rows <= BLOCK_ROWS


def test_subword_regularization_is_a_pure_function_of_seed_epoch_and_shard(tmp_path, small_pieces):
    pairs = made_pairs(300)
    write(tmp_path, "train", pairs)
    prepared = prepare(settings_for(tmp_path))
    corpus = ResegmentedCorpus(prepared, "train", subword_regularization=0.3, seed=4)
    epochs = [[ids.tolist() for pair in corpus.pairs(epoch, range(300)) for ids in pair] for epoch in (0, 1)]
    assert epochs[0] != epochs[1]
    shutil.rmtree(tmp_path / "prepared" / "epochs")
    again = ResegmentedCorpus(prepared, "train", subword_regularization=0.3, seed=4, launcher=LocalLauncher(2))
    assert [ids.tolist() for pair in again.pairs(1, range(300)) for ids in pair] == epochs[1]
    source = prepared.tokenizer("source")
    plain = prepared.train[0]
    for epoch in (0, 1):
        texts = source.decode([pair[0].tolist() for pair in corpus.pairs(epoch, range(300))])
        assert texts == source.decode([pair[0].tolist() for pair in plain.pairs(range(300))])
    plan = Plan([corpus], seed=1, batch_tokens=512)
    for epoch in (0, 1):
        first = sum(int(corpus.micro_batches_per_block(earlier, 512).sum()) for earlier in range(epoch))
        steps = range(first, first + int(corpus.micro_batches_per_block(epoch, 512).sum()))
        assert sorted(row for step in steps for row in plan.batch(step)[0].rows) == list(range(300))


@pytest.mark.parametrize(
    ("change", "error", "says"),
    [
        ({"clean": {"drop": ["empti"]}}, ConfigError, "there is no rule `empti`; did you mean `empty`"),
        ({"tokenizer": {"vocab_size": 20}}, heedful.HeedfulError, "a bpe vocabulary of 20 pieces cannot be trained"),
    ],
)
def test_misuse(tmp_path, change, error, says):
    write(tmp_path, "train", made_pairs(50))
    with pytest.raises(error, match=says):
        prepare(settings_for(tmp_path, **change))


def test_files_that_will_not_do(tmp_path):
    write(tmp_path, "train", [])
    with pytest.raises(DataError, match="no pairs were found; check the files"):
        prepare(settings_for(tmp_path))
    data = {"train": [{"files": str(tmp_path / "train"), "name": "x"}, {"files": str(tmp_path / "train"), "name": "x"}]}
    with pytest.raises(ConfigError, match="2 corpora are named `x`"):
        prepare(settings_for(tmp_path, data=data))


def test_opening_what_is_not_prepared(tmp_path):
    with pytest.raises(DataError, match="it is not completely prepared"):
        open_prepared(tmp_path)
    write(tmp_path, "train", made_pairs(50))
    prepare(settings_for(tmp_path))
    folder = tmp_path / "prepared"
    manifest = json.loads((folder / "manifest.json").read_text("utf-8"))
    (folder / "manifest.json").write_text(json.dumps(manifest | {"format": 99}))
    with pytest.raises(DataError, match="has format 99"):
        open_prepared(folder)
    (folder / "manifest.json").write_text("{")
    with pytest.raises(DataError, match=r"is damaged \(.*To repair it, rerun heedful prepare"):
        open_prepared(folder)
    (folder / "manifest.json").write_text(json.dumps(manifest))
    (folder / "tokens" / "00000" / "train.source.npy").write_bytes(b"cut")
    with pytest.raises(DataError, match="missing or truncated"):
        open_prepared(folder)


def test_the_fingerprint_follows_the_tokens(tmp_path):
    write(tmp_path, "train", made_pairs(60))
    one = prepare(settings_for(tmp_path))
    two = prepare(settings_for(tmp_path, tokenizer={"vocab_size": 350, "character_coverage": 1.0}))
    assert len({one.fingerprint, two.fingerprint, one.train[0].fingerprint, two.train[0].fingerprint}) == 4


def test_buckets_are_equal_ranges_of_the_hash():
    high, _ = hash_pairs(f"text {number}".encode() for number in range(5_000))
    order = np.sort(high)
    for buckets in (1, 3, 64, 4096):
        found = bucket_of(order, buckets)
        assert (np.diff(found) >= 0).all()
        assert found.min() >= 0
        assert found.max() < buckets
    assert (np.bincount(bucket_of(high, 8)) > 500).all()


def test_hashes_are_blake2():
    high, low = hash_pairs([b"a\nb\n"])
    assert f"{int(high[0]):016x}{int(low[0]):016x}" == hashlib.blake2b(b"a\nb\n", digest_size=16).hexdigest()


def test_letters():
    assert keep_letters(["Ein  Haus, um_2 Uhr!", "¿", "Straße", "कि"]) == ["EINHAUSUM2UHR", "", "STRASSE", "कि"]


def test_packed_files(tmp_path):
    pairs = made_pairs(40)
    write(tmp_path, "train", pairs)
    for code in ("en", "de"):
        path = tmp_path / f"train.{code}"
        (tmp_path / f"train.{code}.gz").write_bytes(gzip.compress(path.read_bytes()))
        path.unlink()
    assert prepare(settings_for(tmp_path)).train[0].num_rows == 40


def test_a_folder_of_somebody_else_is_left_alone(tmp_path):
    write(tmp_path, "train", made_pairs(30))
    mine = tmp_path / "prepared" / "text" / "mine.txt"
    mine.parent.mkdir(parents=True)
    mine.write_text("keep me")
    with pytest.raises(ConfigError, match="contains other files"):
        prepare(settings_for(tmp_path))
    assert mine.read_text() == "keep me"
    data = {"prepared_dir": str(tmp_path / "train.en"), "train": [{"files": str(tmp_path / "train")}]}
    with pytest.raises(ConfigError, match="inside a file; choose a directory"):
        prepare(settings_for(tmp_path, data=data))


def test_two_at_once_do_not_get_in_each_others_way(tmp_path, monkeypatch):
    monkeypatch.setattr("heedful.data.prepare.LOCK_WAIT_SECONDS", 0.2)
    write(tmp_path, "train", made_pairs(30))
    settings = settings_for(tmp_path)

    def meanwhile(step):
        if step.stage == "clean":
            with pytest.raises(heedful.HeedfulError, match="another heedful prepare is running"):
                prepare(settings)

    assert prepare(settings, progress=meanwhile).train[0].num_rows == 30


def test_preparations_that_start_together_wait_for_each_other(tmp_path):
    write(tmp_path, "train", made_pairs(30))
    with ThreadPoolExecutor(3) as pool:
        prepared = list(pool.map(prepare, [settings_for(tmp_path)] * 3))
    assert [each.train[0].num_rows for each in prepared] == [30] * 3


def test_what_is_being_changed_cannot_be_opened(tmp_path):
    write(tmp_path, "train", made_pairs(60))
    prepare(settings_for(tmp_path))

    def interrupted(step):
        if step.stage == "tokenize":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        prepare(settings_for(tmp_path, tokenizer={"vocab_size": 350, "character_coverage": 1.0}), progress=interrupted)
    with pytest.raises(DataError, match="it is not completely prepared"):
        open_prepared(tmp_path / "prepared")
    prepare(settings_for(tmp_path))
    (tmp_path / "prepared" / "vocabulary" / "source.model").write_bytes(b"another")
    with pytest.raises(DataError, match="is missing or has changed"):
        open_prepared(tmp_path / "prepared")


def test_in_one_process_the_second_preparation_is_read(tmp_path):
    for seed in (0, 5):
        pairs = made_pairs(40, seed=seed)
        write(tmp_path, "train", pairs)
        prepared = prepare(settings_for(tmp_path))
        assert sorted(decoded(prepared, prepared.train[0])) == [(at + 1, *pair) for at, pair in enumerate(pairs)]


def test_a_corpus_of_two_halves_keeps_both(tmp_path, small_pieces):
    latin = made_pairs(3_000)
    table = str.maketrans("abcdefghijklmnopqrstuvwxyz", "абцдефгхийклмнопярстуввхыз")
    write(tmp_path, "train", latin + [(one + " x", two.lower().translate(table)) for one, two in latin[:2_000]])
    prepared = prepare(settings_for(tmp_path, tokenizer={"vocab_size": 500, "character_coverage": 1.0}))
    assert prepared.train[0].num_rows > 4_900


def test_every_corpus_teaches_the_vocabulary(tmp_path):
    write(tmp_path, "train", made_pairs(300))
    write(tmp_path, "more", [(f"zebra quagga {at}", f"Pferd Nummer {at}") for at in range(200)])
    data = {"prepared_dir": str(tmp_path / "prepared")}
    data["train"] = [{"files": str(tmp_path / name), "name": name} for name in ("train", "more")]
    prepared = prepare(
        settings_for(tmp_path, data=data, tokenizer={"kind": "words", "vocab_size": 90, "training_pairs": 100})
    )
    tokenizer = prepared.tokenizer("source")
    assert {"▁zebra", "▁quagga", "▁house"} <= set(tokenizer.pieces(range(tokenizer.size)))


def test_regularized_epochs_have_the_same_pairs_also_where_long_ones_went(tmp_path):
    write(tmp_path, "train", made_pairs(200))
    lengths = [len(side) for pair in prepare(settings_for(tmp_path)).train[0].pairs(range(200)) for side in pair]
    limit = sorted(lengths)[-40]
    prepared = prepare(settings_for(tmp_path, clean={"max_tokens": limit}))
    rows = prepared.train[0].num_rows
    assert 100 < rows < 200
    corpus = ResegmentedCorpus(prepared, "train", subword_regularization=0.5, seed=1)
    assert corpus.epoch(3).line_numbers(range(rows)) == prepared.train[0].line_numbers(range(rows))
    assert max(len(side) for pair in corpus.pairs(3, range(rows)) for side in pair) <= limit


def test_a_file_is_known_by_more_than_its_date(tmp_path):
    import os

    for name, seed in (("one", 1), ("two", 2)):
        (tmp_path / name).mkdir()
        write(tmp_path / name, "train", [(f"{at % 10} a{seed}", f"{at % 10} b{seed}") for at in range(9)])
        for code in ("en", "de"):
            os.utime(tmp_path / name / f"train.{code}", (1, 1))
    made = []
    for name in ("one", "two"):
        data = {"prepared_dir": str(tmp_path / "prepared"), "train": [{"files": str(tmp_path / name / "train")}]}
        chosen = {"kind": "words", "vocab_size": 50}
        made.append(prepare(settings_for(tmp_path, data=data, tokenizer=chosen)).fingerprint)
    assert made[0] != made[1]


def test_a_corpus_of_which_nothing_is_left_says_so(tmp_path):
    write(tmp_path, "train", [("same here", "same here")] * 5)
    write(tmp_path, "more", made_pairs(40))
    data = {"prepared_dir": str(tmp_path / "prepared")}
    data["train"] = [{"files": str(tmp_path / name), "name": name} for name in ("more", "train")]
    with pytest.raises(DataError, match="all pairs of the corpus `train` were dropped"):
        prepare(settings_for(tmp_path, data=data))


def test_a_corpus_of_many_shards_needs_few_open_files(tmp_path):
    resource = pytest.importorskip("resource", reason="limits of a process are a matter of Unix")
    folders = []
    for number in range(200):
        folder = tmp_path / f"{number:05}"
        folder.mkdir()
        for side in ("source", "target"):
            write_tokens(folder, f"train.{side}", [[number, 1]], vocab_size=300)
        np.save(folder / "train.line.npy", np.array([number + 1]))
        folders.append(folder)
    stored = StoredCorpus("train", tuple(folders), (1,) * 200, "f")
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (200, before[1]))
    try:
        assert [int(source[0]) for source, _ in stored.pairs(range(200))] == list(range(200))
        assert stored.line_numbers(range(200)) == list(range(1, 201))
        assert len(stored.block_lengths(0, 0)[0]) == 200
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
