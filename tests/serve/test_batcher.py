"""Admission, order of the queue, and recovery from crashes."""

import asyncio
import contextlib
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heedful.serve.admission import Admission
from heedful.serve.batcher import Batcher
from heedful.serve.protocol import TranslationJob, beam_cost_factor
from heedful.serve.rejection import RequestRejected
from heedful.serve.request_queue import QueueLimits, estimate_tokens
from heedful.serve.supervisor import WorkerCrashed
from heedful.serve.throughput import ThroughputEstimate

POISON = "poison"


class Echo:
    """A backend that returns its input, at `pace` tokens per second, and crashes on POISON."""

    def __init__(self, pace=float("inf")):
        self.pace, self.batches, self.deaths = pace, [], 0
        self.lock = asyncio.Lock()  # one batch at a time, like the worker process

    async def translate(self, jobs):
        async with self.lock:
            self.batches.append([list(job.texts) for job in jobs])
            await asyncio.sleep(sum(estimate_tokens(job.texts) for job in jobs) / self.pace)
            if any(POISON in job.texts for job in jobs):
                self.deaths += 1
                raise WorkerCrashed
            return [{"translations": [{"text": text} for text in job.texts]} for job in jobs]


def run(body):
    return asyncio.run(body)


def admitted(batcher, job, client, timeout, **how):
    return batcher.admit(job, client, batcher.check_admission(job, client, **how), timeout)


async def outcome(request):
    try:
        return [one["text"] for one in (await request.result)["translations"]]
    except RequestRejected as refused:
        return refused.status


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 60)), min_size=1, max_size=40))
@settings(max_examples=50, deadline=None)
def test_every_admitted_request_is_answered_once(asked):
    async def body():
        engine = Echo()
        batcher = Batcher(engine, Admission(QueueLimits(max_batch_tokens=200)))
        batcher.start()
        requests = []
        for number, (client, letters) in enumerate(asked):
            requests.append(admitted(batcher, TranslationJob([f"{number} " + "x" * letters], {}), client, 10))
        answers = [await outcome(request) for request in requests]
        assert answers == [list(request.job.texts) for request in requests]
        assert sorted(text for batch in engine.batches for texts in batch for text in texts) == sorted(
            text for request in requests for text in request.job.texts
        )
        for batch in engine.batches:
            total = sum(estimate_tokens(texts) for texts in batch)
            assert len(batch) == 1 or total <= 200
        assert (batcher.queue.queued_tokens, batcher.queue.running_tokens, batcher.queue.requests_by_client) == (
            0,
            0,
            {},
        )

    run(body())


def test_a_client_with_a_hundred_requests_does_not_delay_others():
    async def body():
        engine = Echo(pace=20_000)
        batcher = Batcher(engine, Admission(QueueLimits(max_batch_tokens=100, initial_capacity_tokens=10**6)))
        greedy = [admitted(batcher, TranslationJob(["g" * 120], {}), "greedy", 10) for _ in range(100)]
        modest = admitted(batcher, TranslationJob(["m"], {}), "modest", 10)
        batcher.start()
        await modest.result
        assert sum(request.result.done() for request in greedy) <= 6
        await asyncio.gather(*(request.result for request in greedy))

    run(body())


def test_a_full_queue_rejects_immediately_with_retry_after():
    async def body():
        batcher = Batcher(Echo(pace=1_000), Admission(QueueLimits(max_wait_seconds=0.5, initial_capacity_tokens=300)))
        batcher.start()
        first = admitted(batcher, TranslationJob(["x" * 600], {}), "a", 10)
        await first.result  # now the throughput is measured: 1,000 tokens per second
        admitted(batcher, TranslationJob(["x" * 1200], {}), "a", 10)
        admitted(batcher, TranslationJob(["x" * 60], {}), "b", 10)
        begin = time.perf_counter()
        with pytest.raises(RequestRejected) as refused:
            admitted(batcher, TranslationJob(["x" * 1200], {}), "b", 10)
        assert time.perf_counter() - begin < 0.05
        assert refused.value.status == 503
        assert refused.value.retry_after >= 1
        assert batcher.admission.rejected_by_status == {503: 1}

    run(body())


def test_admitted_requests_are_answered_in_time_under_overload():
    async def body():
        batcher = Batcher(Echo(pace=4_000), Admission(QueueLimits(max_wait_seconds=0.5, initial_capacity_tokens=600)))
        batcher.start()
        waits, inside = [], []

        async def timed(request):
            begin = time.monotonic()
            assert await outcome(request) == list(request.job.texts)
            waits.append(time.monotonic() - begin)

        end = time.monotonic() + 3
        while time.monotonic() < end:  # about 40,000 tokens per second
            for number in range(4):
                with contextlib.suppress(RequestRejected):
                    request = admitted(batcher, TranslationJob(["x" * 276], {}), f"{number}", 10)
                    inside.append(asyncio.create_task(timed(request)))
            await asyncio.sleep(0.01)
        await asyncio.gather(*inside)
        assert batcher.admission.rejected_by_status[503] > 200
        assert 100 * len(waits) > 0.8 * 4_000 * 3
        assert max(waits) < 0.5 + 0.25 + 0.25  # the wait, its own batch, and a margin for busy machines

    run(body())


def test_throughput_is_measured_from_full_batches():
    estimate = ThroughputEstimate()
    for tokens, seconds in ((2_000, 0.5), (20, 0.04), (20, 0.05), (2_000, 0.6)):
        estimate.record_batch(tokens, seconds, 2_000)
    assert 3_500 < estimate.tokens_per_second < 4_000  # small, inefficient batches are ignored
    for _ in range(1000):
        estimate.record_batch(400, 0.0001, 2_000)
    assert estimate.tokens_per_second < 6_000  # tokens that need no time have a bounded effect
    before = estimate.tokens_per_second
    estimate.record_batch(2_000, 5.0, 2_000)
    assert estimate.tokens_per_second < before / 2


def test_blank_lines_are_cheap_and_a_prefix_counts_once_per_line():
    assert estimate_tokens(["\n" * 480]) == 1
    assert estimate_tokens(["a\nb"], "x" * 30) == estimate_tokens(["a\nb"]) + 2 * 10


def test_a_busy_client_does_not_block_others():
    async def body():
        # The initial capacity is the true one: a larger one would fill the queue before the throughput is measured.
        limits = QueueLimits(max_wait_seconds=0.5, initial_capacity_tokens=2_000)
        batcher = Batcher(Echo(pace=4_000), Admission(limits))
        batcher.start()
        greedy, modest = [], []
        end = time.monotonic() + 2
        while time.monotonic() < end:
            for _ in range(8):
                with contextlib.suppress(RequestRejected):
                    greedy.append(admitted(batcher, TranslationJob(["x" * 276], {}), "greedy", 10))
            await asyncio.sleep(0.01)
            if len(modest) < 20 and (not modest or modest[-1].result.done()):
                modest.append(admitted(batcher, TranslationJob(["x" * 90], {}), "modest", 10))  # never rejected
        assert batcher.admission.rejected_by_status[503] > 100
        assert len(modest) >= 3

    run(body())


def test_a_job_that_crashed_twice_is_rejected_without_translation():
    async def body():
        engine = Echo()
        batcher = Batcher(engine)
        batcher.start()
        for known, deaths in enumerate((3, 6, 6), 1):  # the third time it is not tried
            with contextlib.suppress(RequestRejected):
                assert await outcome(admitted(batcher, TranslationJob([POISON], {}), "bad", 10)) == 422
            assert engine.deaths == deaths
            assert batcher.admission.rejected_by_status[422] == known

    run(body())


def test_an_unexpected_error_does_not_stop_the_runner():
    async def body():
        engine = Echo()
        batcher = Batcher(engine)
        real = engine.translate

        async def odd(jobs):
            engine.translate = real
            return []

        engine.translate = odd
        batcher.start()
        assert await outcome(admitted(batcher, TranslationJob(["a"], {}), "a", 10)) == 503
        assert await outcome(admitted(batcher, TranslationJob(["a"], {}), "a", 10)) == ["a"]

    run(body())


def test_requests_left_at_the_drain_deadline_get_503():
    async def body():
        batcher = Batcher(Echo(pace=100))
        batcher.start()
        inside = [admitted(batcher, TranslationJob(["x" * 90], {}), "a", 60) for _ in range(3)]
        await asyncio.sleep(0.05)
        await batcher.drain(time.monotonic() + 0.1)
        assert [await outcome(one) for one in inside] == [503] * 3

    run(body())


def test_limits_of_one_request():
    async def body():
        batcher = Batcher(Echo(), Admission(QueueLimits(max_request_tokens=100, max_request_texts=3)))
        for texts in (["x"] * 4, ["x" * 1000]):
            with pytest.raises(RequestRejected) as refused:
                admitted(batcher, TranslationJob(texts, {}), "a", 10)
            assert refused.value.status == 413

    run(body())


def test_disconnected_requests_are_dropped_and_expired_ones_get_504():
    async def body():
        engine = Echo()
        batcher = Batcher(engine)
        stays = admitted(batcher, TranslationJob(["stays"], {}), "a", 10)
        leaves = admitted(batcher, TranslationJob(["leaves"], {}), "b", 10)
        late = admitted(batcher, TranslationJob(["late"], {}), "c", 0.0)
        leaves.result.cancel()
        await asyncio.sleep(0.01)
        batcher.start()
        assert await outcome(stays) == ["stays"]
        assert await outcome(late) == 504
        assert engine.batches == [[["stays"]]]
        assert (batcher.counters.disconnected, batcher.counters.expired, batcher.queue.queued_tokens) == (1, 1, 0)

    run(body())


def test_only_the_request_that_crashes_the_worker_fails():
    async def body():
        engine = Echo()
        batcher = Batcher(engine)
        good = [admitted(batcher, TranslationJob([f"good {number}"], {}), f"{number}", 10) for number in range(5)]
        bad = admitted(batcher, TranslationJob([POISON], {}), "bad", 10)
        batcher.start()
        assert await outcome(bad) == 422
        assert [await outcome(one) for one in good] == [[f"good {number}"] for number in range(5)]
        assert engine.deaths == 3
        assert batcher.counters.poison == 1
        after = admitted(batcher, TranslationJob(["after"], {}), "a", 10)
        assert await outcome(after) == ["after"]

    run(body())


def test_draining_finishes_admitted_requests_and_rejects_new_ones():
    async def body():
        batcher = Batcher(Echo(pace=2_000))
        batcher.start()
        inside = [admitted(batcher, TranslationJob(["x" * 90], {}), "a", 10) for _ in range(5)]
        drained = asyncio.create_task(batcher.drain(time.monotonic() + 5))
        await asyncio.sleep(0)
        with pytest.raises(RequestRejected) as refused:
            admitted(batcher, TranslationJob(["x"], {}), "a", 10)
        assert refused.value.status == 503
        await drained
        assert all(request.result.done() and not request.result.exception() for request in inside)

    run(body())


def test_lines_have_a_fixed_cost_and_characters_cost_their_expansion():
    assert estimate_tokens(["a\n" * 100]) > 50 * estimate_tokens(["a"])
    assert estimate_tokens(["\ufdfa" * 30]) > 8 * estimate_tokens(["a" * 30])


def test_a_wide_beam_costs_more_and_a_narrow_one_no_less():
    async def body():
        batcher = Batcher(Echo())
        asked = [{"beam": 1}, {}, {"beam": 16}, {"beam": 2, "num_best": 16}]
        costs = [
            admitted(batcher, TranslationJob(["x" * 90], {}), "a", 10, cost_factor=beam_cost_factor(one, 5)).cost_tokens
            for one in asked
        ]
        assert costs[0] == costs[1] == estimate_tokens(["x" * 90])
        assert costs[2] == costs[3] == pytest.approx(3.2 * costs[1], abs=1)

    run(body())


def test_a_request_costs_at_most_the_limit_at_the_default_beam():
    async def body():
        batcher = Batcher(Echo(), Admission(QueueLimits(max_request_tokens=1000)))
        for wide in (1.0, 1.8, 3.2, 16.0):
            for characters in range(0, 4000, 37):
                job = TranslationJob(["x" * characters], {})
                if estimate_tokens(job.texts) * wide <= 1000:
                    assert (
                        estimate_tokens(job.texts) * wide <= batcher.check_admission(job, "a", cost_factor=wide) <= 1000
                    )
                    continue
                with pytest.raises(RequestRejected, match=f"send at most {int(1000 / wide):,}") as refused:
                    batcher.check_admission(job, "a", cost_factor=wide)
                assert refused.value.status == 413

    run(body())


def test_a_started_document_continues_while_the_server_is_full_or_draining():
    async def body():
        batcher = Batcher(Echo(pace=5_000), Admission(QueueLimits(initial_capacity_tokens=100)))
        batcher.start()
        batcher.admission.num_open_documents = 1
        admitted(batcher, TranslationJob(["x" * 200], {}), "a", 10)
        more = admitted(batcher, TranslationJob(["y" * 200], {}), "b", 10, is_continuation=True)
        drained = asyncio.create_task(batcher.drain(time.monotonic() + 5))
        await asyncio.sleep(0)
        last = admitted(batcher, TranslationJob(["z" * 200], {}), "b", 10, is_continuation=True)
        assert await outcome(more) == ["y" * 200]
        assert await outcome(last) == ["z" * 200]
        assert not drained.done()
        batcher.admission.num_open_documents = 0
        await drained

    run(body())
