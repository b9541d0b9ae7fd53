"""The queue: who is let in, who is next, what a crash costs."""

import asyncio
import contextlib
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heedful.serve.batcher import Batcher, Limits, Pace, Refused, size
from heedful.serve.protocol import width
from heedful.serve.supervisor import Ask, Crashed

POISON = "poison"


class Echo:
    """An engine that says what it was told, as quickly as it is told to; over poison it dies."""

    def __init__(self, pace=float("inf")):
        self.pace, self.batches, self.deaths = pace, [], 0
        self.lock = asyncio.Lock()  # one batch after the other, as a process answers

    async def ask(self, asks):
        async with self.lock:
            self.batches.append([list(ask.texts) for ask in asks])
            await asyncio.sleep(sum(size(ask.texts) for ask in asks) / self.pace)
            if any(POISON in ask.texts for ask in asks):
                self.deaths += 1
                raise Crashed
            return [{"translations": [{"text": text} for text in ask.texts]} for ask in asks]


def run(body):
    return asyncio.run(body)


def admitted(batcher, ask, client, timeout, **how):
    return batcher.admit(ask, client, batcher.check(ask, client, **how), timeout)


async def outcome(request):
    try:
        return [one["text"] for one in (await request.answer)["translations"]]
    except Refused as refused:
        return refused.status


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 60)), min_size=1, max_size=40))
@settings(max_examples=50, deadline=None)
def test_everyone_who_is_let_in_is_answered_once_and_in_turn(asked):
    async def body():
        engine = Echo()
        batcher = Batcher(engine, Limits(batch=200))
        batcher.start()
        requests = []
        for number, (client, letters) in enumerate(asked):
            requests.append(admitted(batcher, Ask([f"{number} " + "x" * letters], {}), client, 10))
        answers = [await outcome(request) for request in requests]
        assert answers == [list(request.ask.texts) for request in requests]
        assert sorted(text for batch in engine.batches for texts in batch for text in texts) == sorted(
            text for request in requests for text in request.ask.texts
        )
        for batch in engine.batches:
            total = sum(size(texts) for texts in batch)
            assert len(batch) == 1 or total <= 200
        assert (batcher.queued, batcher.working, batcher.queues) == (0, 0, {})

    run(body())


def test_a_client_with_a_hundred_requests_does_not_keep_another_waiting():
    async def body():
        engine = Echo(pace=20_000)
        batcher = Batcher(engine, Limits(batch=100, first=10**6))
        greedy = [admitted(batcher, Ask(["g" * 120], {}), "greedy", 10) for _ in range(100)]
        modest = admitted(batcher, Ask(["m"], {}), "modest", 10)
        batcher.start()
        await modest.answer
        assert sum(request.answer.done() for request in greedy) <= 6
        await asyncio.gather(*(request.answer for request in greedy))

    run(body())


def test_what_cannot_wait_is_refused_at_once_with_a_time_to_come_again():
    async def body():
        batcher = Batcher(Echo(pace=1_000), Limits(wait=0.5, first=300))
        batcher.start()
        first = admitted(batcher, Ask(["x" * 600], {}), "a", 10)
        await first.answer  # now the pace is known: 1,000 tokens a second
        admitted(batcher, Ask(["x" * 1200], {}), "a", 10)
        admitted(batcher, Ask(["x" * 60], {}), "b", 10)
        begin = time.perf_counter()
        with pytest.raises(Refused) as refused:
            admitted(batcher, Ask(["x" * 1200], {}), "b", 10)
        assert time.perf_counter() - begin < 0.05
        assert refused.value.status == 503
        assert refused.value.after >= 1
        assert batcher.counts.refused == {503: 1}

    run(body())


def test_who_is_let_in_is_answered_in_time_whatever_comes():
    async def body():
        batcher = Batcher(Echo(pace=4_000), Limits(wait=0.5, first=600))
        batcher.start()
        waits, inside = [], []

        async def timed(request):
            begin = time.monotonic()
            assert await outcome(request) == list(request.ask.texts)
            waits.append(time.monotonic() - begin)

        end = time.monotonic() + 3
        while time.monotonic() < end:  # some 40,000 tokens a second
            for number in range(4):
                with contextlib.suppress(Refused):
                    request = admitted(batcher, Ask(["x" * 276], {}), f"{number}", 10)
                    inside.append(asyncio.create_task(timed(request)))
            await asyncio.sleep(0.01)
        await asyncio.gather(*inside)
        assert batcher.counts.refused[503] > 200
        assert 100 * len(waits) > 0.8 * 4_000 * 3
        assert max(waits) < 0.5 + 0.25 + 0.25  # the wait, its own batch, and what a busy machine adds

    run(body())


def test_the_pace_is_that_of_full_batches():
    pace = Pace()
    for tokens, seconds in ((2_000, 0.5), (20, 0.04), (20, 0.05), (2_000, 0.6)):
        pace.learn(tokens, seconds, 2_000)
    assert 3_500 < pace.value < 4_000  # small ones, which are slow for their size, do not count
    for _ in range(1000):
        pace.learn(400, 0.0001, 2_000)
    assert pace.value < 6_000  # and what costs tokens but no time says little
    before = pace.value
    pace.learn(2_000, 5.0, 2_000)
    assert pace.value < before / 2


def test_blank_lines_cost_next_to_nothing_and_a_prefix_once_a_line():
    assert size(["\n" * 480]) == 1
    assert size(["a\nb"], "x" * 30) == size(["a\nb"]) + 2 * 10


def test_a_busy_client_keeps_nobody_out():
    async def body():
        batcher = Batcher(Echo(pace=4_000), Limits(wait=0.5))
        batcher.start()
        greedy, modest = [], []
        end = time.monotonic() + 2
        while time.monotonic() < end:
            for _ in range(8):
                with contextlib.suppress(Refused):
                    greedy.append(admitted(batcher, Ask(["x" * 276], {}), "greedy", 10))
            await asyncio.sleep(0.01)
            if len(modest) < 20 and (not modest or modest[-1].answer.done()):
                modest.append(admitted(batcher, Ask(["x" * 90], {}), "modest", 10))  # never refused
        assert batcher.counts.refused[503] > 100
        assert len(modest) >= 3

    run(body())


def test_who_kills_the_engine_again_and_again_is_known():
    async def body():
        engine = Echo()
        batcher = Batcher(engine)
        batcher.start()
        for known, deaths in enumerate((3, 6, 6), 1):  # the third time nobody tries
            with contextlib.suppress(Refused):
                assert await outcome(admitted(batcher, Ask([POISON], {}), "bad", 10)) == 422
            assert engine.deaths == deaths
            assert batcher.counts.refused[422] == known

    run(body())


def test_nothing_ends_the_runner():
    async def body():
        engine = Echo()
        batcher = Batcher(engine)
        real = engine.ask

        async def odd(asks):
            engine.ask = real
            return []

        engine.ask = odd
        batcher.start()
        assert await outcome(admitted(batcher, Ask(["a"], {}), "a", 10)) == 503
        assert await outcome(admitted(batcher, Ask(["a"], {}), "a", 10)) == ["a"]

    run(body())


def test_who_is_still_in_when_time_is_up_is_told():
    async def body():
        batcher = Batcher(Echo(pace=100))
        batcher.start()
        inside = [admitted(batcher, Ask(["x" * 90], {}), "a", 60) for _ in range(3)]
        await asyncio.sleep(0.05)
        await batcher.drain(time.monotonic() + 0.1)
        assert [await outcome(one) for one in inside] == [503] * 3

    run(body())


def test_limits_of_one_request():
    async def body():
        batcher = Batcher(Echo(), Limits(tokens=100, texts=3))
        for texts in (["x"] * 4, ["x" * 1000]):
            with pytest.raises(Refused) as refused:
                admitted(batcher, Ask(texts, {}), "a", 10)
            assert refused.value.status == 413

    run(body())


def test_who_has_left_costs_nothing_and_whose_time_is_over_is_told():
    async def body():
        engine = Echo()
        batcher = Batcher(engine)
        stays = admitted(batcher, Ask(["stays"], {}), "a", 10)
        leaves = admitted(batcher, Ask(["leaves"], {}), "b", 10)
        late = admitted(batcher, Ask(["late"], {}), "c", 0.0)
        leaves.answer.cancel()
        await asyncio.sleep(0.01)
        batcher.start()
        assert await outcome(stays) == ["stays"]
        assert await outcome(late) == 504
        assert engine.batches == [[["stays"]]]
        assert (batcher.counts.left, batcher.counts.expired, batcher.queued) == (1, 1, 0)

    run(body())


def test_only_the_guilty_suffers_when_the_engine_dies():
    async def body():
        engine = Echo()
        batcher = Batcher(engine)
        good = [admitted(batcher, Ask([f"good {number}"], {}), f"{number}", 10) for number in range(5)]
        bad = admitted(batcher, Ask([POISON], {}), "bad", 10)
        batcher.start()
        assert await outcome(bad) == 422
        assert [await outcome(one) for one in good] == [[f"good {number}"] for number in range(5)]
        assert engine.deaths == 3
        assert batcher.counts.poison == 1
        after = admitted(batcher, Ask(["after"], {}), "a", 10)
        assert await outcome(after) == ["after"]

    run(body())


def test_draining_serves_those_who_are_in_and_nobody_else():
    async def body():
        batcher = Batcher(Echo(pace=2_000))
        batcher.start()
        inside = [admitted(batcher, Ask(["x" * 90], {}), "a", 10) for _ in range(5)]
        drained = asyncio.create_task(batcher.drain(time.monotonic() + 5))
        await asyncio.sleep(0)
        with pytest.raises(Refused) as refused:
            admitted(batcher, Ask(["x"], {}), "a", 10)
        assert refused.value.status == 503
        await drained
        assert all(request.answer.done() and not request.answer.exception() for request in inside)

    run(body())


def test_a_line_costs_by_being_one_and_a_character_by_what_it_stands_for():
    assert size(["a\n" * 100]) > 50 * size(["a"])
    assert size(["\ufdfa" * 30]) > 8 * size(["a" * 30])


def test_a_wide_beam_costs_more_and_a_narrow_one_no_less():
    async def body():
        batcher = Batcher(Echo())
        asked = [{"beam": 1}, {}, {"beam": 16}, {"beam": 2, "num_best": 16}]
        costs = [admitted(batcher, Ask(["x" * 90], {}), "a", 10, width=width(one, 5)).cost for one in asked]
        assert costs[0] == costs[1] == size(["x" * 90])
        assert costs[2] == costs[3] == pytest.approx(3.2 * costs[1], abs=1)

    run(body())


def test_nothing_is_let_in_that_costs_more_than_a_full_request_at_the_usual_beam():
    async def body():
        batcher = Batcher(Echo(), Limits(tokens=1000))
        for wide in (1.0, 1.8, 3.2, 16.0):
            for characters in range(0, 4000, 37):
                ask = Ask(["x" * characters], {})
                if size(ask.texts) * wide <= 1000:
                    assert size(ask.texts) * wide <= batcher.check(ask, "a", width=wide) <= 1000
                    continue
                with pytest.raises(Refused, match=f"send at most {int(1000 / wide):,}") as refused:
                    batcher.check(ask, "a", width=wide)
                assert refused.value.status == 413

    run(body())


def test_a_document_that_was_begun_goes_on_while_the_server_is_full_or_goes_down():
    async def body():
        batcher = Batcher(Echo(pace=5_000), Limits(first=100))
        batcher.start()
        batcher.open = 1
        admitted(batcher, Ask(["x" * 200], {}), "a", 10)
        more = admitted(batcher, Ask(["y" * 200], {}), "b", 10, inside=True)
        drained = asyncio.create_task(batcher.drain(time.monotonic() + 5))
        await asyncio.sleep(0)
        last = admitted(batcher, Ask(["z" * 200], {}), "b", 10, inside=True)
        assert await outcome(more) == ["y" * 200]
        assert await outcome(last) == ["z" * 200]
        assert not drained.done()
        batcher.open = 0
        await drained

    run(body())
