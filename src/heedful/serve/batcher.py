"""Who is translated when: admission, fairness, batches, deadlines.

    cost     tokens, about · beam / usual beam
    queue    by tokens, not by requests: a newcomer may wait `wait` seconds at the measured pace, no longer. Who has
             nothing waiting has the last quarter of it to himself, so a busy client keeps nobody out
    turns    clients in turn, each with its oldest request
    batch    requests up to a budget of tokens, whole ones only, one batch at a time, of a third of that time at most.
             Nobody waits for company: a batch is what came while the one before was at work
    crash    the batch at work is tried again one by one; whoever kills the engine ALONE times by itself is refused, and
             who is found so again is remembered

A request that has left, or whose time is over, is dropped before it costs anything.
"""

import asyncio
import logging
import time
from collections import Counter, OrderedDict, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from math import ceil, exp
from typing import Any, Protocol
from unicodedata import normalize

from heedful.serve.protocol import PER_LINE, too_much
from heedful.serve.supervisor import Ask, Crashed

BYTES = 3.0  # in a token, about: a guess that the pace, measured in the same guess, makes good
MEMORY = 10.0  # seconds of work after which a batch has lost most of its say in the pace
UP = 4.0  # times as quick as it seemed may a batch be
SMALLEST = 512  # tokens that a batch may always have
OWN = 0.75  # of the room, for those who have something waiting already
ALONE = 2  # tries of one that was in a batch when the engine died: it may die of something else meanwhile
POISONS = 256  # asks that are remembered because they kill the engine

BUSY = "too busy: nothing is wrong with the request, send it again later"
GOING = "the server is going down: ask another, or again later"
POISON = "the engine crashes over this text, also when it has nothing else to do"


class Answers(Protocol):
    """Anything that answers asks: the engine."""

    async def ask(self, asks: Sequence[Ask]) -> list[Any]:
        """One answer for each."""
        ...


class Refused(Exception):
    """A request that is not served: the status, why, and when to come again."""

    def __init__(self, status: int, why: str, after: float | None = None) -> None:
        super().__init__(why)
        self.status, self.why = status, why
        self.after = None if after is None else max(1, ceil(after))


@dataclass(frozen=True, slots=True)
class Limits:
    """What the server promises to hold."""

    wait: float = 2.0  # seconds in the queue
    tokens: int = 4096  # of one request at the usual beam, as guessed and as counted
    texts: int = 256  # of one request
    batch: int = 4096  # tokens, about
    first: int = 4096  # tokens that may wait while the pace is not known


@dataclass(eq=False, slots=True)
class Request:
    """One that was admitted."""

    ask: Ask
    client: str
    cost: int
    deadline: float
    answer: asyncio.Future[Any]
    came: float = field(default_factory=time.monotonic)

    @property
    def gone(self) -> bool:
        """Whether nobody waits for it any more."""
        return self.answer.done()


def size(texts: Sequence[str], prefix: str = "") -> int:
    """About how many tokens some texts have: at once, and without a tokenizer; some characters stand for many.

    A line costs by being one, unless it is blank, and once more for what its translation must begin with.
    """
    lines = sum(not line.isspace() for text in texts for line in text.splitlines() if line)
    each = PER_LINE + (spelled(prefix) if prefix else 0)
    return lines * each + sum(1 + spelled(text) for text in texts)


def spelled(text: str) -> int:
    """The tokens of a text by its bytes alone, but for the ends of lines."""
    return int(len(normalize("NFKC", text).encode("utf-8", "replace").replace(b"\n", b"")) / BYTES)


@dataclass(slots=True)
class Counts:
    """What happened, for /metrics."""

    admitted: int = 0
    answered: int = 0
    refused: dict[int, int] = field(default_factory=dict)
    left: int = 0  # whose clients went before their turn came
    wasted: int = 0  # tokens of those who went while they were at work
    expired: int = 0
    batches: int = 0
    batched: int = 0  # tokens
    retried: int = 0
    poison: int = 0
    waited: float = 0.0  # seconds in the queue
    worked: float = 0.0  # seconds that batches took


class Pace:
    """Tokens a second: sums of both, in which what is long ago counts less; so a moment, however odd, counts little."""

    def __init__(self) -> None:
        self.tokens = self.seconds = 0.0

    def learn(self, tokens: float, seconds: float, budget: float) -> None:
        """A batch; a small one, which is slow for its size, tells only that the engine is no slower.

        What costs tokens but no work (say, characters that are removed) is believed only so far.
        """
        tokens = min(tokens, UP * self.value * seconds) if self.seconds else tokens
        if tokens >= budget / 2 or tokens > self.value * seconds:
            kept = exp(-seconds / MEMORY)
            self.tokens, self.seconds = kept * self.tokens + tokens, kept * self.seconds + seconds

    @property
    def value(self) -> float:
        """0 until something was measured."""
        return self.tokens / self.seconds if self.seconds else 0.0


class Batcher:
    """The queue in front of an engine."""

    def __init__(self, engine: Answers, limits: Limits | None = None) -> None:
        self.engine, self.limits = engine, limits or Limits()
        self.queues: OrderedDict[str, deque[Request]] = OrderedDict()
        self.waiting: Counter[str] = Counter()  # tokens of each client
        self.queued = 0  # tokens
        self.batch: Sequence[Request] = ()  # at work
        self.turn = 0  # batches taken: nothing else makes room
        self.measured = Pace()
        self.counts = Counts()
        self.poisons: OrderedDict[str, int] = OrderedDict()  # asks, and how often each was found guilty
        self.awake = asyncio.Event()
        self.draining = False
        self.open = 0  # documents of which more is to come
        self.runner: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to serve."""
        self.runner = asyncio.create_task(self.run())

    @property
    def working(self) -> int:
        """Tokens at the engine."""
        return sum(request.cost for request in self.batch)

    @property
    def pace(self) -> float:
        """Tokens a second; 0 until measured."""
        return self.measured.value

    @property
    def capacity(self) -> float:
        """Tokens that may wait or be at work."""
        return self.pace * self.limits.wait if self.pace else self.limits.first

    @property
    def budget(self) -> float:
        """Tokens of a batch."""
        return min(self.limits.batch, max(SMALLEST, self.pace * self.limits.wait / 3))

    @property
    def wait(self) -> float:
        """Seconds that a newcomer would wait, at the measured pace."""
        return (self.queued + self.working) / self.pace if self.pace else 0.0

    # ------------------------------------------------------------------------------------------------ coming in

    def full(self, client: str | None, cost: float = 0.0) -> bool:
        """Whether this one would wait too long, or keep others out; whoever finds an empty queue may always wait."""
        room = self.capacity if client is None or not self.waiting[client] else OWN * self.capacity
        return self.queued > 0 and self.queued + self.working + cost > room

    def check(self, ask: Ask, client: str, *, width: float = 1.0, inside: bool = False) -> int:
        """What it would cost; Refused, at once and whatever the load, where it cannot be.

        `width`, at least 1, is how much more than usual a token costs. Who is `inside` has a document that was begun:
        it goes on.
        """
        if self.draining and not inside:
            raise self.refused(503, GOING, 2.0)
        if len(ask.texts) > self.limits.texts:
            raise self.refused(413, f"{len(ask.texts):,} texts in one request; send at most {self.limits.texts:,}")
        tokens = size(ask.texts, ask.options.get("prefix", ""))
        cost = ceil(tokens * width)
        if cost > self.limits.tokens:
            raise self.refused(413, "about " + too_much(tokens, width, self.limits.tokens))
        if self.poisons and self.poisons.get(name_of(ask), 0) > 1:  # once may have been somebody's kill
            raise self.refused(422, POISON)
        if not inside and self.full(client, cost):
            raise self.refused(503, BUSY, self.wait)
        return cost

    def admit(self, ask: Ask, client: str, cost: int, timeout: float) -> Request:
        """A place in the queue."""
        loop = asyncio.get_running_loop()
        request = Request(ask, client, cost, time.monotonic() + timeout, loop.create_future())
        self.counts.admitted += 1
        self.queues.setdefault(client, deque()).append(request)
        self.waiting[client] += cost
        self.queued += cost
        self.awake.set()
        return request

    def refused(self, status: int, why: str, after: float | None = None) -> Refused:
        """Counted."""
        self.counts.refused[status] = self.counts.refused.get(status, 0) + 1
        return Refused(status, why, after)

    # ------------------------------------------------------------------------------------------------ going out

    def take(self) -> list[Request]:
        """The next batch: clients in turn, each with its oldest request, while the budget lasts."""
        batch: list[Request] = []
        total = 0
        while self.queues:
            client, queue = next(iter(self.queues.items()))
            request = queue[0]
            if request.gone or time.monotonic() > request.deadline:
                self.drop(request)
            elif batch and total + request.cost > self.budget:
                break
            else:
                batch.append(request)
                total += request.cost
            queue.popleft()
            self.queued -= request.cost
            self.waiting[client] -= request.cost
            self.queues.move_to_end(client)
            if not queue:
                del self.queues[client], self.waiting[client]
        return batch

    def drop(self, request: Request) -> None:
        """It costs nothing more."""
        if request.gone:
            self.counts.left += 1
            return
        self.counts.expired += 1
        why = "its time was over before its turn came: it was not translated"
        request.answer.set_exception(self.refused(504, why, self.wait))

    async def run(self) -> None:
        """Batch after batch; nothing may end this."""
        while True:
            self.batch = self.take()
            self.turn += 1
            if not self.batch:
                self.awake.clear()
                await self.awake.wait()
                continue
            try:
                await self.serve(self.batch)
            except Exception:
                logging.getLogger("heedful").exception("a batch was lost")
                for request in self.batch:
                    self.give_up(request, "something went wrong here: send it again later")

    async def serve(self, batch: Sequence[Request]) -> None:
        """One batch through the engine; after a crash, one by one."""
        begin, tokens = time.monotonic(), self.working
        self.counts.waited += sum(begin - request.came for request in batch)
        try:
            answers = await self.engine.ask([request.ask for request in batch])
        except Crashed:
            await self.again(batch)
            return
        took = time.monotonic() - begin
        self.counts.batches += 1
        self.counts.batched += tokens
        self.counts.worked += took
        self.measured.learn(tokens, took, self.budget)
        for request, answer in zip(batch, answers, strict=True):
            self.hand(request, answer)

    def hand(self, request: Request, answer: Any) -> None:
        """An answer to who waits for it."""
        if request.gone:
            self.counts.wasted += request.cost
            return
        if "error" in answer:
            request.answer.set_exception(self.refused(int(answer["code"]), str(answer["error"])))
            return
        self.counts.answered += 1
        request.answer.set_result(answer)

    async def again(self, batch: Sequence[Request]) -> None:
        """The engine died over a batch: each is tried once more, alone, so that only the guilty one suffers."""
        for request in batch:
            for _ in range(ALONE):
                if request.gone:
                    break
                self.counts.retried += 1
                try:
                    (answer,) = await self.engine.ask([request.ask])
                except Crashed:
                    continue
                self.hand(request, answer)
                break
            else:
                self.condemn(request)

    def condemn(self, request: Request) -> None:
        """It is the one that kills the engine."""
        self.counts.poison += 1
        name = name_of(request.ask)
        self.poisons[name] = self.poisons.pop(name, 0) + 1
        if len(self.poisons) > POISONS:
            self.poisons.popitem(last=False)
        if not request.gone:
            request.answer.set_exception(self.refused(422, POISON))

    def give_up(self, request: Request, why: str) -> None:
        """It will not be answered any more."""
        if not request.gone:
            request.answer.set_exception(self.refused(503, why, 2.0))

    async def drain(self, until: float) -> None:
        """No more come in; those who are in are served until then (of the monotonic clock), and the rest told so."""
        self.draining = True
        while (self.queued or self.batch or self.open) and time.monotonic() < until:
            await asyncio.sleep(0.01)
        if self.runner:
            self.runner.cancel()
        for request in (*self.batch, *(one for queue in self.queues.values() for one in queue)):
            self.give_up(request, GOING)


def name_of(ask: Ask) -> str:
    """A hash by which an ask is known again."""
    return sha256(repr((list(ask.texts), sorted(ask.options.items()))).encode("utf-8", "replace")).hexdigest()
