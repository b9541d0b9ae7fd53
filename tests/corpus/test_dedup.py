"""Duplicates: which go, which stay, and what it takes to find them."""

import numpy as np
import pytest

from heedful.corpus.stages import MIN_PIECE_BYTES, SLICE_BYTES, choose_piece_bytes
from support.hostile_corpora import everywhere, judge_survivors, write_repeated
from support.process_memory import MB, MEASURABLE, prepare_text


@pytest.mark.parametrize(
    "pairs", [7, 40_000, pytest.param(200_000, marks=pytest.mark.slow)], ids=["a few", "pieces", "200 k"]
)
def test_the_first_of_equal_pairs_stays_and_the_hash_is_the_order(pairs, tmp_path):
    corpora = write_repeated(tmp_path, pairs)
    took = prepare_text(tmp_path / "heedful.toml")
    assert not any(judge_survivors(tmp_path / "prepared" / "text", corpora).values())
    assert took["counts"]["duplicates"] == pairs // 5
    assert took["counts"]["pairs.one"] + took["counts"]["pairs.two"] == pairs - pairs // 5
    if MEASURABLE:
        assert 0 < took["peak"] < 64 * MB


@pytest.mark.slow
def test_a_pair_that_is_everywhere_takes_no_more_memory(tmp_path):
    corpora = write_repeated(tmp_path, 400_000, everywhere)
    took = prepare_text(tmp_path / "heedful.toml")
    assert not any(judge_survivors(tmp_path / "prepared" / "text", corpora, everywhere).values())
    assert took["counts"]["duplicates"] == 360_000
    if MEASURABLE:
        assert took["peak"] < 64 * MB


def test_the_judge_of_survivors_can_be_dissatisfied(tmp_path):
    corpora = write_repeated(tmp_path, 40)
    prepare_text(tmp_path / "heedful.toml")
    text = tmp_path / "prepared" / "text"
    lines, source = text / "00000" / "one.line.npy", text / "00000" / "one.source"
    numbers, texts = np.load(lines), source.read_bytes()
    copies = np.arange(5, 31, 5)  # lines 5, 10, ... are copies
    assert not set(numbers) & set(copies)
    np.save(lines, np.where(numbers == 1, 5, numbers))
    assert judge_survivors(text, corpora) == {"not_first": 1, "altered": 1, "lost": 2, "disordered": 0}
    np.save(lines, numbers)
    source.write_bytes(b"".join(reversed(texts.splitlines(keepends=True))))
    found = judge_survivors(text, corpora)
    assert found["altered"] == len(numbers)
    assert found["disordered"]


def test_pieces_grow_with_the_root_of_the_text_so_that_slices_do_not_multiply():
    assert choose_piece_bytes(0) == choose_piece_bytes(10**6) == MIN_PIECE_BYTES
    for total in (10**9, 10**10, 10**11, 10**12):
        piece = choose_piece_bytes(total)
        assert piece >= MIN_PIECE_BYTES
        slices = (total / piece) ** 2
        assert slices * SLICE_BYTES <= 1.01 * total
    assert choose_piece_bytes(10**12) < 128 * 1.01 * MB
