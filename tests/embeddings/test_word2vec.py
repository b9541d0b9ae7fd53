"""word2vec: its gradients against autograd, its samples against their definition, and what it learns."""

import itertools
from collections import Counter

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from heedful.embeddings import word2vec
from heedful.embeddings.word2vec import (
    BATCH_BLOCKS,
    BLOCK_TOKENS,
    METHODS,
    Tables,
    TokenBatch,
    WordOptions,
    count_words,
    keep_probabilities,
    make_noise_table,
    read_batches,
    softmax_gradient,
    split_words,
    train_vectors,
)
from heedful.errors import ConfigError, DataError

RATE = 0.1


def make_batch(seed=0, words=9, blocks=2, length=6):
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.randint(words, (blocks, length), generator=generator)
    is_pair = torch.rand(blocks, length, length, generator=generator) < 0.4
    is_pair &= ~torch.eye(length, dtype=torch.bool)
    return TokenBatch(tokens, is_pair, blocks * length)


def make_tables(words=9, width=4):
    torch.manual_seed(1)
    v, u = torch.randn(2, words, width, dtype=torch.double)
    return Tables(v, u, torch.zeros(words, dtype=torch.double))


def skip_gram(v, u, batch, negatives, per_pair):
    """The objective, one pair after another."""
    total = 0.0
    for block, c, o in batch.is_pair.nonzero().tolist():
        center = v[batch.tokens[block, c]]
        total = total + F.logsigmoid(u[batch.tokens[block, o]] @ center)
        for negative in negatives[block]:
            total = total + per_pair / len(negatives[block]) * F.logsigmoid(-u[negative] @ center)
    return total


def full_softmax(v, u, batch):
    return sum(
        torch.log_softmax(u @ v[batch.tokens[block, c]], 0)[batch.tokens[block, o]]
        for block, c, o in batch.is_pair.nonzero().tolist()
    )


def cbow_softmax(v, u, batch):
    total = 0.0
    for block, c in itertools.product(*map(range, batch.tokens.shape)):
        if (context := batch.tokens[block, batch.is_pair[block, c]]).numel():
            total = total + torch.log_softmax(u @ v[context].mean(0), 0)[batch.tokens[block, c]]
    return total


@pytest.fixture(autouse=True)
def double(monkeypatch):
    """Masks become doubles, so that gradients can be compared exactly."""
    monkeypatch.setattr(torch.Tensor, "float", torch.Tensor.double)
    monkeypatch.setattr(word2vec, "MAX_STEP", 1e9)


def check_update(step, objective, inputs_get_the_sum=False):
    tables = make_tables()
    v, u = tables.input.clone().requires_grad_(), tables.output.clone().requires_grad_()
    gradients = torch.autograd.grad(objective(v, u), (v, u))
    before = tables.input.clone(), tables.output.clone()
    step(tables)
    torch.testing.assert_close(tables.output - before[1], RATE * gradients[1])
    if not inputs_get_the_sum:
        torch.testing.assert_close(tables.input - before[0], RATE * gradients[0])
    return tables.input - before[0]


def test_B2_negative_sampling_ascends_its_objective():
    batch, negatives = make_batch(), torch.tensor([[1, 2, 3, 3], [0, 5, 8, 2]])
    check_update(
        lambda tables: word2vec.skip_gram_step(tables, batch, negatives, 5, RATE),
        lambda v, u: skip_gram(v, u, batch, negatives, 5),
    )


def test_B2_the_full_softmax_ascends_its_objective():
    batch = make_batch()
    check_update(
        lambda tables: word2vec.skip_gram_softmax_step(tables, batch, RATE), lambda v, u: full_softmax(v, u, batch)
    )


def test_cbow_ascends_its_objective_and_gives_each_context_word_the_whole_gradient():
    batch, negatives = make_batch(), torch.tensor([[1, 2, 3, 3], [0, 5, 8, 2]])

    def objective(v, u):
        total = 0.0
        for block, c in itertools.product(*map(range, batch.tokens.shape)):
            if (context := batch.tokens[block, batch.is_pair[block, c]]).numel():
                mean = v[context].mean(0)
                total = total + F.logsigmoid(u[batch.tokens[block, c]] @ mean)
                total = total + 5 / 4 * F.logsigmoid(-u[negatives[block]] @ mean).sum()
        return total

    check_update(lambda tables: word2vec.cbow_step(tables, batch, negatives, 5, RATE), objective, True)
    # with one word of context per word, the mean is that word, and the gradient is exact
    single = TokenBatch(batch.tokens, torch.eye(6, dtype=torch.bool).roll(1, 0).expand(2, 6, 6), 12)
    batch = single
    check_update(lambda tables: word2vec.cbow_step(tables, batch, negatives, 5, RATE), objective)
    check_update(lambda tables: word2vec.cbow_softmax_step(tables, batch, RATE), lambda v, u: cbow_softmax(v, u, batch))


def test_B4_the_worked_example_of_the_lecture():
    v = torch.tensor([0.1, -0.3, 1.4, 0.2, 0.5])
    assert float(torch.tensor([0.0, 1.0, 2.0, -0.5, 1.0]) @ v) == pytest.approx(2.9)
    scores = torch.tensor([[0.0, 2.9, 0.1, 1.4, -0.5, 0.0, 0.0]])
    p = F.one_hot(torch.tensor([1]), 7) - softmax_gradient(scores, torch.tensor([1]), 1.0)
    expected = torch.tensor([[0.0371, 0.6746, 0.0410, 0.1505, 0.0225, 0.0371, 0.0371]])
    torch.testing.assert_close(p, expected, rtol=0, atol=5e-5)


# ------------------------------------------------------------------------------------------------------------- samples

TEXT = [" ".join(f"w{(7 * line + place) % 40}" for place in range(3 + line % 90)) for line in range(400)]


def test_words_are_split_and_counted():
    assert split_words("Don't stop: the X-ray, 3.5 cats!") == ["don't", "stop", "the", "x-ray", "3", "5", "cats"]
    assert split_words("The Cat", keep_case=True) == ["The", "Cat"]
    vocabulary = count_words(["b a a", "a c"], WordOptions(min_count=1))
    assert (vocabulary.words, vocabulary.counts.tolist(), vocabulary.total) == (["a", "b", "c"], [3, 1, 1], 5)
    with pytest.raises(DataError, match="1 words occur at least 3 times in the text: use more text"):
        count_words(["b a a", "a c"], WordOptions(min_count=3))


def test_pairs_are_neighbors_in_a_line_and_every_reach_is_drawn():
    options = WordOptions(min_count=1, subsample=0, window=4)
    vocabulary = count_words(TEXT, options)
    lines = {tuple(split_words(line)) for line in TEXT}
    follows = {(line[i], line[j], j - i) for line in lines for i in range(len(line)) for j in range(len(line))}
    reaches, tokens, words = Counter(), 0, 0
    for batch in read_batches(TEXT, vocabulary, options, np.random.default_rng(0)):
        assert batch.tokens.shape == (BATCH_BLOCKS, BLOCK_TOKENS)
        words += batch.words
        tokens += int(batch.is_pair.any(2).sum())
        for block, center, context in batch.is_pair.nonzero()[::97].tolist():
            pair = (vocabulary.words[batch.tokens[block, place]] for place in (center, context))
            assert (*pair, context - center) in follows
        places = torch.arange(BLOCK_TOKENS)
        reaches.update((batch.is_pair * (places[None] - places[:, None])).amax(2)[:, :-4].flatten().tolist())
    assert words == vocabulary.total
    assert tokens > 0.98 * vocabulary.total  # nearly every word has a context in its block
    assert max(reaches) == 4
    assert all(reaches[reach] == pytest.approx(vocabulary.total / 4, rel=0.15) for reach in (1, 2, 3, 4))


def test_frequent_words_are_skipped_as_often_as_the_formula_says():
    counts = np.array([900, 90, 10])
    keep = keep_probabilities(counts, 0.05)
    assert keep.tolist() == pytest.approx([(0.05 / 0.9) ** 0.5 + 0.05 / 0.9, 1, 1])
    assert keep_probabilities(counts, 0).tolist() == [1, 1, 1]
    options = WordOptions(min_count=1, subsample=0.05)
    text = ["a " * 9 + "b"] * 2000
    vocabulary = count_words(text, options)
    seen = Counter(
        token
        for batch in read_batches(text, vocabulary, options, np.random.default_rng(0))
        for token in batch.tokens[batch.is_pair.any(2)].tolist()
    )
    assert seen[0] / 18_000 == pytest.approx(float(keep_probabilities(vocabulary.counts, 0.05)[0]), rel=0.15)


def test_negative_words_are_drawn_by_count_to_the_power_of_three_quarters():
    counts = np.array([1000, 100, 10])
    shares = np.bincount(make_noise_table(counts)) / word2vec.NOISE_TABLE
    assert shares.tolist() == pytest.approx((counts**0.75 / (counts**0.75).sum()).tolist(), rel=1e-3)


# ------------------------------------------------------------------------------------------------------------ learning

SUBJECTS = {"pet": ["cat", "dog", "hamster"], "drink": ["tea", "coffee", "milk"]}
FRAMES = {
    "pet": ["the {} sleeps in its basket", "my {} eats and runs after a ball", "she feeds the {} every morning"],
    "drink": ["a cup of hot {} please", "he poured more {} into my glass", "this {} tastes bitter without sugar"],
}


def two_topics(random):
    for _ in range(1500):
        kind = random.choice(list(FRAMES))
        yield random.choice(FRAMES[kind]).format(random.choice(SUBJECTS[kind]))


@pytest.mark.parametrize("negatives", [5, 0])
@pytest.mark.parametrize("method", METHODS)
def test_words_with_the_same_contexts_get_similar_vectors(monkeypatch, method, negatives):
    monkeypatch.undo()
    text = list(two_topics(np.random.default_rng(0)))
    options = WordOptions(
        method=method, negatives=negatives, width=16, window=3, min_count=1, subsample=0, epochs=5, learning_rate=0.05
    )
    progress = []
    vectors = train_vectors(lambda: text, options, progress.append)
    for kind, words in SUBJECTS.items():
        other = SUBJECTS["drink" if kind == "pet" else "pet"]
        inside = min(vectors.similarity(*pair) for pair in itertools.combinations(words, 2))
        across = max(vectors.similarity(*pair) for pair in itertools.product(words, other))
        assert inside > across + 0.1
    assert progress[-1].words == progress[-1].total_words == 5 * count_words(text, options).total
    again = train_vectors(lambda: text, options)
    np.testing.assert_array_equal(vectors.matrix, again.matrix)


def test_misuse():
    for options, message in (
        ({"method": "glove"}, "unknown method `glove`; known: skip-gram, cbow"),
        ({"window": 64}, "window must be at most 63, not 64"),
        ({"epochs": 0}, "epochs must be at least 1, not 0"),
        ({"learning_rate": 0.0}, "learning_rate above 0"),
    ):
        with pytest.raises(ConfigError, match=message):
            WordOptions(**options)
    many = [f"w{number}" for number in range(word2vec.MAX_SOFTMAX_WORDS + 1)]
    with pytest.raises(ConfigError, match="the full softmax over 20,001 words would be too slow"):
        train_vectors(lambda: many, WordOptions(min_count=1, negatives=0))
