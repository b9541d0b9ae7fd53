"""Batch k is a pure function of (seed, corpora, k), and every pair comes once per epoch."""

import hashlib
import itertools
import math
import pickle
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from heedful.data import plan as module
from heedful.data.plan import (
    CorpusStream,
    EpochPosition,
    MicroBatch,
    Plan,
    count_micro_batches,
    random_words,
    shuffle_range,
    split_block,
)
from heedful.errors import HeedfulError


@dataclass(frozen=True)
class Drawn:
    """A corpus whose lengths are drawn from its fingerprint; another draw in every epoch if they are not fixed."""

    fingerprint: str = "one"
    num_rows: int = 1000
    has_fixed_lengths: bool = True
    longest: int = 40

    def block_lengths(self, epoch, block):
        rows = min(module.BLOCK_ROWS, self.num_rows - block * module.BLOCK_ROWS)
        words = random_words(2 * rows, self.fingerprint, "lengths", 0 if self.has_fixed_lengths else epoch, block)
        return np.split((words % np.uint64(self.longest) + np.uint64(1)).astype(np.uint16), 2)

    def micro_batches_per_block(self, epoch, max_tokens):
        first = range(0, self.num_rows, module.BLOCK_ROWS)
        return np.array(
            [
                count_micro_batches(*self.block_lengths(epoch, row // module.BLOCK_ROWS), max_tokens, first_row=row)
                for row in first
            ]
        )


@pytest.fixture
def small_blocks(monkeypatch):
    monkeypatch.setattr(module, "BLOCK_ROWS", 64)


def listed(batch: tuple[MicroBatch, ...]) -> list[tuple[int, list[int]]]:
    return [(micro.corpus, micro.rows.tolist()) for micro in batch]


def digest(plan: Plan, steps: int) -> str:
    return hashlib.sha256(repr([listed(plan.batch(step)) for step in range(steps)]).encode()).hexdigest()


def epoch_of_rows(stream: CorpusStream, epoch: int) -> list[np.ndarray]:
    """The units of one epoch, found by asking from unit 0 on."""
    numbers = itertools.dropwhile(lambda unit: stream.locate(unit)[0] < epoch, itertools.count())
    return [stream.rows(unit) for unit in itertools.takewhile(lambda unit: stream.locate(unit)[0] == epoch, numbers)]


@settings(deadline=None, max_examples=50)
@given(
    rows=st.integers(1, 300),
    longest=st.integers(1, 60),
    spare=st.integers(0, 200),
    block=st.sampled_from([1, 7, 64, 1000]),
    fixed=st.booleans(),
    seed=st.integers(0, 2**64),
)
def test_every_pair_comes_once_per_epoch_and_no_unit_exceeds_the_budget(rows, longest, spare, block, fixed, seed):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "BLOCK_ROWS", block)
        corpus = Drawn(num_rows=rows, longest=longest, has_fixed_lengths=fixed)
        budget = longest + spare
        stream = CorpusStream(corpus, seed, budget)
        for epoch in range(3):
            units = epoch_of_rows(stream, epoch)
            assert sorted(np.concatenate(units).tolist()) == list(range(rows))
            assert len(units) == corpus.micro_batches_per_block(epoch, budget).sum()
            both = [corpus.block_lengths(epoch, number) for number in range(math.ceil(rows / block))]
            longer = np.concatenate([np.maximum(*pair) for pair in both]).astype(int)
            assert all(len(unit) * longer[unit].max() <= budget for unit in units)


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50)), min_size=1, max_size=300), st.integers(50, 500))
@example([(3, 0), (2, 0)] * 4, 50)  # as far apart as lengths can be
def test_units_are_greedy_and_their_number_does_not_depend_on_chance(pairs, budget):
    source, target = np.array(pairs, dtype=np.uint16).T
    longer = np.maximum(source, target).astype(int)
    for seed in range(3):
        units = split_block(source, target, budget, words=random_words(len(pairs), seed), turn=seed)
        assert len(units) == count_micro_batches(source, target, budget)
        assert np.all(np.diff(longer[np.concatenate(units)]) >= 0)
        for unit, following in itertools.pairwise(units):
            assert (len(unit) + 1) * max(longer[following[0]], 1) > budget, "one more row would have fitted"


def test_rows_of_one_length_go_up_and_then_down():
    """L = 2 upwards in source - target, L = 3 downwards; the other way round in the next turn."""
    source, target = np.array([[1, 2], [2, 2], [2, 1], [3, 1], [3, 3], [1, 3]]).T
    words = random_words(6, "any")
    assert np.concatenate(split_block(source, target, 9, words=words)).tolist() == [0, 1, 2, 3, 4, 5]
    assert np.concatenate(split_block(source, target, 9, words=words, turn=1)).tolist() == [2, 1, 0, 5, 4, 3]


def test_all_ranks_together_read_the_batch_of_one(small_blocks):
    corpora = [Drawn("one"), Drawn("two", num_rows=300)]
    alone = Plan(corpora, seed=3, batch_tokens=800, micro_batches=8)
    for ranks, step in itertools.product((1, 2, 4, 8), (0, 5, 333)):
        shares = [
            listed(Plan(corpora, seed=3, batch_tokens=800, micro_batches=8).batch_of_rank(step, rank, ranks))
            for rank in range(ranks)
        ]
        assert {len(share) for share in shares} == {8 // ranks}
        taken_in_turn = [micro for turn in zip(*shares, strict=True) for micro in turn]
        assert taken_in_turn == listed(alone.batch(step))


@pytest.mark.parametrize("fixed", [True, False])
def test_a_batch_does_not_depend_on_what_was_asked_before(small_blocks, fixed):
    corpora = [Drawn("one", has_fixed_lengths=fixed), Drawn("two", num_rows=100, has_fixed_lengths=fixed)]
    plan = Plan(corpora, seed=0, batch_tokens=400, micro_batches=2)
    forwards = [listed(plan.batch(step)) for step in range(900)]
    for step in shuffle_range(900, "any order")[:100].tolist():
        assert listed(Plan(corpora, seed=0, batch_tokens=400, micro_batches=2).batch(step)) == forwards[step]
    assert listed(pickle.loads(pickle.dumps(plan)).batch(7)) == forwards[7]


def test_seed_fingerprint_and_epoch_make_another_order():
    @dataclass(frozen=True)
    class Same(Drawn):
        def block_lengths(self, epoch, block):
            return Drawn("one", self.num_rows, longest=self.longest).block_lengths(epoch, block)

    def units(seed=0, fingerprint="one", epoch=0):
        return epoch_of_rows(CorpusStream(Same(fingerprint, num_rows=5000, longest=8), seed, 200), epoch)

    def sets(units):
        return {frozenset(unit.tolist()) for unit in units}

    reference = units()
    assert [unit.tolist() for unit in units()] == [unit.tolist() for unit in reference]
    for other in (units(seed=1), units(fingerprint="two"), units(epoch=1), units(epoch=2)):
        assert len(other) == len(reference)
        assert [unit.tolist() for unit in other] != [unit.tolist() for unit in reference]
        assert len(sets(other) & sets(reference)) < len(reference) / 4, "not only the order of batches is new"


def test_the_next_epoch_mixes_other_rows_even_where_no_two_are_alike():
    class Grid(Drawn):
        def block_lengths(self, epoch, block):
            return tuple(np.indices((30, 30)).reshape(2, -1) + 1)

    stream = CorpusStream(Grid(num_rows=900), 0, 100)
    here, following = ({frozenset(unit.tolist()) for unit in epoch_of_rows(stream, epoch)} for epoch in range(2))
    assert len(here & following) < len(here) / 4


def test_the_order_is_the_order_that_runs_were_begun_with():
    """If this fails, every run that is resumed with the new code reads other batches: do not just change the hash."""
    corpora = [Drawn("one", num_rows=2 * 65_536 + 1), Drawn("two", num_rows=300, has_fixed_lengths=False)]
    plan = Plan(corpora, seed=1, batch_tokens=12_000, micro_batches=3, temperature=5.0)
    assert digest(plan, 1000) == "120a91eaba6e58cf45bc332cf28ffc81b7020dff5e2edade7649fbcf83dcbcc0"


def counts(plan: Plan, units: int) -> np.ndarray:
    return np.bincount([plan.mix.locate(unit)[0] for unit in range(units)], minlength=len(plan.corpora))


@pytest.mark.parametrize("weights", [[1.0], [3.0, 1.0], [1, 1, 1], [0.7, 0.2, 0.0999, 0.0001], [1e-5, 1.0]])
def test_corpora_get_their_weight_and_none_starves(weights):
    plan = Plan([Drawn(str(i)) for i in range(len(weights))], seed=0, batch_tokens=1000, weights=weights)
    share = np.array(weights) / sum(weights)
    for unit in (1, 999, 1000, 1001, 54_321, 99_999, 100_000, 100_001, 10**6, 10**12 + 7):
        _, before = plan.mix.locate(unit)
        assert before.sum() == unit
        assert np.all(
            np.abs(before - unit * share) <= module.MIX_PERIOD * np.minimum(share, 1 - share) + len(weights) + 1
        )
    for period in (1, 100, 12_345):
        assert np.all(np.abs(plan.mix.counts_before(period) - period * module.MIX_PERIOD * share) <= 1.001)
    assert plan.mix.locate(300_000)[1].min() >= 2


def test_the_mix_counts_what_it_gives():
    plan = Plan([Drawn(str(i)) for i in range(5)], seed=0, batch_tokens=1000, weights=[5, 4, 3, 0.01, 2])
    assert np.array_equal(counts(plan, 4321), plan.mix.locate(4321)[1])
    even = Plan([Drawn("one"), Drawn("two")], seed=0, batch_tokens=1000, weights=[1, 1])
    first, second = ([even.mix.locate(period * 1000 + slot)[0] for slot in range(1000)] for period in range(2))
    assert sorted(first) == sorted(second) == [0] * 500 + [1] * 500
    assert sorted(first) != first != second


def test_more_corpora_than_a_period_has_units():
    plan = Plan([Drawn(str(i), num_rows=1) for i in range(1250)], seed=0, batch_tokens=1000)
    assert set(counts(plan, 2500)) <= {1, 2, 3}


def test_temperature_flattens_sizes():
    corpora = [Drawn("large", num_rows=10_000), Drawn("small", num_rows=100)]

    def share(**mix):
        return np.array((plan := Plan(corpora, seed=0, batch_tokens=1000, **mix)).mix.weights) / sum(plan.mix.weights)

    assert share() == pytest.approx([100 / 101, 1 / 101])
    assert share(temperature=1.0) == pytest.approx(share())
    assert share(temperature=2.0) == pytest.approx([10 / 11, 1 / 11])
    assert share(temperature=math.inf) == pytest.approx([0.5, 0.5])


def test_progress_counts_passes(small_blocks):
    corpora = [Drawn("one"), Drawn("two", num_rows=70, has_fixed_lengths=False)]
    plan = Plan(corpora, seed=0, batch_tokens=100, weights=[1, 1])
    assert plan.epoch_positions(0) == (EpochPosition(0, 0.0), EpochPosition(0, 0.0))
    given = counts(plan, 5000)
    one, two = plan.epoch_positions(5000)
    assert one.epoch + one.fraction == pytest.approx(given[0] / corpora[0].micro_batches_per_block(0, 100).sum())
    passed = sum(corpora[1].micro_batches_per_block(epoch, 100).sum() for epoch in range(two.epoch))
    assert two.fraction == pytest.approx((given[1] - passed) / corpora[1].micro_batches_per_block(two.epoch, 100).sum())
    assert len({corpora[1].micro_batches_per_block(epoch, 100).sum() for epoch in range(20)}) > 1, (
        "epochs differ in length"
    )


def correlation(one, other) -> float:
    """Spearman's, times sqrt(n - 1): about standard normal when there is nothing to see."""
    ranks = [np.argsort(np.argsort(values, kind="stable")) for values in (one, other)]
    return np.corrcoef(*ranks)[0, 1] * math.sqrt(len(one) - 1)


def looks_like_chance(values: list[float]) -> bool:
    return max(map(abs, values)) < 4 and 0.5 < math.sqrt(np.mean(np.square(values))) < 1.5


def test_length_does_not_show_in_the_order_of_a_block():
    corpus = Drawn(num_rows=module.BLOCK_ROWS)
    mean_lengths = []
    for seed, epoch in itertools.product(range(4), range(2)):
        units = CorpusStream(corpus, seed, 2000).block_micro_batches(epoch, 0)
        longer = np.maximum(*corpus.block_lengths(epoch, 0))
        mean_lengths.append([longer[unit].mean() for unit in units])
    assert looks_like_chance(
        [correlation(range(len(means)), means) for means in mean_lengths]
        + [correlation(means[1:], means[:-1]) for means in mean_lengths]
    )
    assert not looks_like_chance([correlation(range(len(means)), sorted(means)) for means in mean_lengths])


def test_place_does_not_show_in_the_order_of_blocks(small_blocks):
    corpus = Drawn(num_rows=64 * 1000)
    orders = [CorpusStream(corpus, seed, 200).block_order(epoch)[0] for seed in range(4) for epoch in range(2)]
    assert looks_like_chance(
        [correlation(range(1000), blocks) for blocks in orders]
        + [correlation(blocks[1:], blocks[:-1]) for blocks in orders]
        + [correlation(one, other) for one, other in itertools.pairwise(orders)]
    )


def test_the_rows_of_a_batch_cannot_be_changed_in_the_cache(small_blocks):
    micro = Plan([Drawn()], seed=0, batch_tokens=400).batch(0)[0]
    with pytest.raises(ValueError, match="read-only"):
        micro.rows[0] = 1


def test_a_pair_over_the_budget_is_named_when_the_plan_is_made(small_blocks):
    corpus = Drawn(num_rows=200, longest=40)
    longer = np.concatenate([np.maximum(*corpus.block_lengths(0, block)) for block in range(4)])
    row = int(np.flatnonzero(longer[128:] > 39)[0]) + 128  # the first two blocks are made short below

    @dataclass(frozen=True)
    class Late(Drawn):
        def block_lengths(self, epoch, block):
            source, target = super().block_lengths(epoch, block)
            return (source, target) if block >= 2 else (source % 30, target % 30)

    with pytest.raises(
        HeedfulError,
        match=rf"row {row} has 40 tokens .* is limited to 39\. Raise batch_tokens.*with a lower clean\.max_tokens",
    ):
        Plan([Late(num_rows=200, longest=40)], seed=0, batch_tokens=78, micro_batches=2)


def test_counts_of_another_budget_are_noticed(small_blocks):
    class Stale(Drawn):
        def micro_batches_per_block(self, epoch, max_tokens):
            return super().micro_batches_per_block(epoch, max_tokens + 100)

    with pytest.raises(ValueError, match=r"block \d+ has \d+ micro-batches, but its corpus counts \d+"):
        Plan([Stale()], seed=0, batch_tokens=100).batch(0)


@pytest.mark.parametrize(
    ("error", "message", "options"),
    [
        (
            ValueError,
            "micro_batches must be between 1 and batch_tokens \\(4\\), but is 5",
            {"batch_tokens": 4, "micro_batches": 5},
        ),
        (ValueError, "micro_batches must be between 1 and batch_tokens .*, but is 0", {"micro_batches": 0}),
        (ValueError, "set only one of them", {"weights": [1, 2], "temperature": 2.0}),
        (ValueError, "3 weights for 2 corpora", {"weights": [1, 2, 3]}),
        (ValueError, "weights must be positive", {"weights": [1, 0]}),
        (ValueError, "weights must be positive", {"weights": [1, math.nan]}),
        (ValueError, "temperature must be positive", {"temperature": 0.0}),
        (HeedfulError, "a training corpus has no pairs", {"corpora": [Drawn(num_rows=0)]}),
        (HeedfulError, "nothing to train on", {"corpora": []}),
    ],
)
def test_misuse_is_explained(error, message, options):
    with pytest.raises(error, match=message):
        Plan(**{"corpora": [Drawn(), Drawn("two")], "seed": 0, "batch_tokens": 1000} | options)


def test_what_cannot_be_asked():
    plan = Plan([Drawn()], seed=0, batch_tokens=1000, micro_batches=8)
    with pytest.raises(HeedfulError, match=r"8 micro-batches .* 3 ranks.*multiple of 3"):
        plan.batch_of_rank(0, 0, 3)
    with pytest.raises(ValueError, match="no rank 2 among 2"):
        plan.batch_of_rank(0, 2, 2)
    with pytest.raises(ValueError, match="count from 0"):
        plan.batch(-1)
