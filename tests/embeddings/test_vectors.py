"""Files of word vectors, neighbors and analogies."""

import gzip

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from heedful.embeddings import WordVectors, read_vectors, write_vectors
from heedful.embeddings.map_page import project_to_plane, render_map, select_words
from heedful.embeddings.vectors import vectors_of_pieces
from heedful.errors import ConfigError, DataError

ROYAL = WordVectors(
    ["man", "woman", "king", "queen", "apple"],
    np.array([[1, 0, 0.2], [0, 1, 0.2], [1, 0, 1], [0, 1, 1], [-1, -1, 0]], dtype=np.float32),
)


def test_neighbors_and_analogies_by_hand():
    assert [word for word, _ in ROYAL.near("man")] == ["king", "queen", "woman", "apple"]
    assert ROYAL.near("man", 1)[0][1] == pytest.approx(1.2 / (1.04**0.5 * 2**0.5))
    assert ROYAL.analogy("man", "king", "woman", 1)[0][0] == "queen"
    assert ROYAL.similarity("King", "king") == pytest.approx(1.0)  # or of its lower-case form
    with pytest.raises(DataError, match="there is no vector for `kin`; did you mean `king`"):
        ROYAL.near("kin")
    with pytest.raises(DataError, match="there is no vector for `zzzz`: use another word"):
        ROYAL.near("zzzz")


@given(st.integers(1, 30), st.integers(1, 6), st.integers(1, 40))
def test_neighbors_are_the_largest_cosines(size, width, count):
    matrix = np.random.default_rng(size).normal(size=(size, width)).astype(np.float32)
    vectors = WordVectors([f"w{number}" for number in range(size)], matrix)
    units = matrix / np.linalg.norm(matrix, axis=1, keepdims=True)
    cosines = sorted((float(cosine) for cosine in (units @ units[0])[1:]), reverse=True)[:count]
    assert [cosine for _, cosine in vectors.near("w0", count)] == pytest.approx(cosines, abs=1e-5)


@pytest.mark.parametrize("name", ["words.vec", "words.vec.gz"])
def test_a_file_is_read_as_it_was_written(tmp_path, name):
    path = tmp_path / "words.vec"
    write_vectors(path, ROYAL)
    assert path.read_text().splitlines()[:2] == ["5 3", "man 1 0 0.2"]
    if name.endswith(".gz"):
        path = tmp_path / name
        path.write_bytes(gzip.compress((tmp_path / "words.vec").read_bytes()))
    vectors = read_vectors(path)
    assert vectors.words == ROYAL.words
    np.testing.assert_array_equal(vectors.matrix, ROYAL.matrix)
    assert read_vectors(path, max_words=2).words == ["man", "woman"]


def test_files_of_glove_fasttext_and_nilc(tmp_path):
    path = tmp_path / "vectors.txt"
    path.write_text("the 0.1 -0.2 3e-3\n. . . 1 2 3\nNova York 4 5 6 \n", encoding="utf-8")  # GloVe: no first line
    vectors = read_vectors(path)
    assert vectors.words == ["the", ". . .", "Nova York"]  # GloVe 840B and NILC have words with spaces
    path.write_text("3 2\n</s> 0 0\n12 1 2\nмир 3 4\n", encoding="utf-8")  # fastText: a first line, numbers as words
    assert read_vectors(path).words == ["</s>", "12", "мир"]
    assert read_vectors(path).matrix.tolist() == [[0, 0], [1, 2], [3, 4]]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a 1 2\nb 1\n", ":2: expected a word and 2 numbers"),
        ("2 2\na 1 2\nb 1 x\n", ":3: expected a word and 2 numbers"),
        ("a 1 nan\n", ":1: expected a word and 2 numbers"),
        ("hello\n", ":1: expected a word and 1 numbers"),
        ("5 3\n", "contains no word vectors"),
        ("", "contains no word vectors"),
    ],
)
def test_a_file_that_is_not_one_is_refused(tmp_path, text, message):
    (tmp_path / "words.vec").write_text(text)
    with pytest.raises(DataError, match=message):
        read_vectors(tmp_path / "words.vec")


def test_other_mistakes(tmp_path):
    write_vectors(tmp_path / "words.vec", ROYAL)
    with pytest.raises(DataError, match=r"there is no file .*word.vec; did you mean `words.vec`"):
        read_vectors(tmp_path / "word.vec")
    with pytest.raises(ConfigError, match=r"cannot write the word 'New York': a word in a \.vec file has no spaces"):
        write_vectors(tmp_path / "words.vec", WordVectors(["New York"], ROYAL.matrix[:1]))


def test_vectors_of_the_pieces_of_a_vocabulary():
    matches = vectors_of_pieces(ROYAL, ["<pad>", "▁king", "▁King", "ki", "man", "▁", ""])  # wo-man: not the word
    assert {index: row.tolist() for index, row in matches.items()} == {1: [1, 0, 1], 2: [1, 0, 1]}
    matches = vectors_of_pieces(ROYAL, ["<pad>", "king", "man"])  # a vocabulary without marks
    assert list(matches) == [1, 2]


def test_only_some_words_are_read(tmp_path):
    write_vectors(tmp_path / "words.vec", ROYAL)
    assert read_vectors(tmp_path / "words.vec", only={"man", "boy"}).words == ["man"]
    assert read_vectors(tmp_path / "words.vec", only={"boy"}).matrix.shape == (0, 3)


def test_the_map_shows_the_two_main_directions():
    rng = np.random.default_rng(0)
    flat = rng.normal(size=(50, 2)) @ rng.normal(size=(2, 8))
    plane = project_to_plane(flat.astype(np.float32))
    np.testing.assert_allclose(  # distances in a plane are kept
        np.linalg.norm(plane[0] - plane[1:], axis=1), np.linalg.norm(flat[0] - flat[1:], axis=1), rtol=1e-4
    )
    page = render_map(select_words(WordVectors(["<b>", "a", "c"], ROYAL.matrix[:3]), [], 3), "<x>.vec")
    assert "&lt;b&gt;" in page
    assert "<b>" not in page
    assert "Words of &lt;x&gt;.vec" in page
    assert page.count("<circle") == 3
