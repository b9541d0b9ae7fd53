"""What all requests share: the engine, the queue before it, and who has spent what."""

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from heedful.serve.batcher import Batcher, Limits, Refused, size
from heedful.serve.guard import Buckets, owner
from heedful.serve.protocol import width
from heedful.serve.supervisor import Ask, Engine

CANARY = 10.0  # seconds between two signs that the engine translates
DOCUMENTS = 8  # that may be open at once: each is held in memory
OF_ONE = 2  # of them, of one client
MUCH = "you have asked for much in a short time: wait a little"
Leaving = Callable[[], Coroutine[Any, Any, None]]


@dataclass(frozen=True)
class Settings:
    """How the server behaves; all of it is safe as it stands."""

    limits: Limits = field(default_factory=Limits)
    keys: Mapping[str, str] = field(default_factory=dict)  # hash -> name; none: everybody may
    hosts: frozenset[str] | None = None  # names under which it may be asked; None: any
    body: int = 1 << 20  # bytes of a request
    document: int = 16 << 20  # bytes of a document
    lines: int = 200_000  # of a document
    patience: float = 10.0  # seconds that a body may take to arrive; of a document, six times as long
    timeout: float = 30.0  # seconds that a request may take, unless it says less
    rate: float = 20_000.0  # tokens a second for one client
    burst: float = 200_000.0
    grace: float = 30.0  # seconds to finish in, after SIGTERM
    inspects: Path | None = None  # the model directory that /inspect looks into


class Served:
    """A server's state."""

    def __init__(self, engine: Engine, settings: Settings) -> None:
        self.engine, self.settings = engine, settings
        self.batcher = Batcher(engine, settings.limits)
        self.buckets = Buckets(settings.rate, settings.burst)
        self.began = time.monotonic()
        self.statuses: dict[int, int] = {}
        self.characters: Counter[str] = Counter()  # translated for each key, or (without keys) for all
        self.documents: Counter[str] = Counter()  # open ones of each client
        self.looking = asyncio.Lock()

    async def sing(self) -> None:
        """Where nothing is asked, translate something now and then: ready is who answers."""
        while True:
            if time.monotonic() - self.engine.answered > CANARY / 2:
                with contextlib.suppress(Exception):
                    await asyncio.wait_for(self.engine.ask([Ask(["a"], {"beam": 1, "tokens": False})]), CANARY)
            await asyncio.sleep(CANARY / 4)

    @property
    def faults(self) -> list[str]:
        """Why it is not ready. A full queue is no reason: were all servers full, nobody would be left to say so."""
        silent = not self.batcher.batch and time.monotonic() - self.engine.answered > 3 * CANARY
        found = {
            "draining": self.batcher.draining,
            "the engine is starting": not self.engine.ready.is_set(),
            "the engine does not answer": silent,
            "the queue stands still": self.batcher.runner is None or self.batcher.runner.done(),
        }
        return [why for why, so in found.items() if so]

    @property
    def about(self) -> dict[str, Any]:
        """What the model says of itself, and whether one can look inside here."""
        return {**self.engine.about, "inspects": self.settings.inspects is not None}

    def known(self, address: str, key: str | None) -> str | None:
        """Who asks: the owner of a key or, where none are needed, an address; None where a key is none of ours."""
        if not self.settings.keys:
            return f"address {address}"
        name = owner(self.settings.keys, key or "")
        return name and f"key {name}"

    def client(self, address: str, key: str | None) -> str:
        """The same; Refused where it is nobody."""
        if client := self.known(address, key):
            return client
        raise Refused(401, "a key is needed, and this is none: send the header Authorization: Bearer KEY")

    def account(self, client: str) -> str:
        """Under whose name characters are counted: there are few keys, and any number of addresses."""
        return client if self.settings.keys else ""

    def width(self, options: Mapping[str, Any]) -> float:
        """How much more than usual a token costs."""
        return width(options, self.engine.about.get("beam", 1))

    async def translate(
        self, client: str, texts: Sequence[str], options: Mapping[str, Any], left: Leaving, timeout: float | None = None
    ) -> dict[str, Any]:
        """Through the queue, the guard and the engine; `left` returns when the client has gone."""
        ask = Ask(texts, options)
        cost = self.batcher.check(ask, client, width=self.width(options))
        if wait := self.buckets.spend(client, cost):  # who is refused for another reason does not pay
            raise self.batcher.refused(429, MUCH, wait)
        limit = min(timeout or self.settings.timeout, self.settings.timeout)
        return await self.awaited(ask, client, cost, left, limit)

    async def awaited(self, ask: Ask, client: str, cost: int, left: Leaving, limit: float) -> dict[str, Any]:
        """The answer to who was let in, unless he leaves or the time is over."""
        answer = self.batcher.admit(ask, client, cost, limit).answer
        gone = asyncio.create_task(left())
        try:
            both: set[asyncio.Future[Any]] = {answer, gone}
            done, _ = await asyncio.wait(both, timeout=limit + 1, return_when=asyncio.FIRST_COMPLETED)
            if answer in done:
                found: dict[str, Any] = answer.result()
                self.characters[self.account(client)] += sum(len(one["source"]) for one in found["translations"])
                return found
            if done:
                raise Refused(499, "the client left")
            raise self.batcher.refused(504, "it took too long: send less at once, or again later", self.batcher.wait)
        finally:
            gone.cancel()
            if not answer.done():
                answer.cancel()

    # ------------------------------------------------------------------------------------------------ documents

    def open(self, client: str) -> None:
        """Room for a document, before it is read; Refused where there is none."""
        if self.batcher.draining or self.batcher.open >= DOCUMENTS or self.documents[client] >= OF_ONE:
            raise self.batcher.refused(503, "other documents are being translated: send this one later", 5.0)
        self.batcher.open += 1
        self.documents[client] += 1

    def close(self, client: str) -> None:
        """It is over."""
        self.batcher.open -= 1
        self.documents -= Counter([client])

    async def document(
        self, client: str, lines: Iterable[str], options: Mapping[str, Any], left: Leaving
    ) -> AsyncIterator[dict[str, Any]]:
        """The translations of many lines, as they come: part by part, each in its turn among the other clients.

        Once the first part was let in the others follow, also while the server is busy or goes down; who asks for more
        than his share waits instead of being refused. The parts are small, so that also what is cut into more tokens
        than was guessed is not too much. Every line says which model it was: another may take over in between.
        """
        limits, wide, begun = self.settings.limits, self.width(options), False
        for part in parts(lines, int(min(limits.batch, limits.tokens / 4) / wide)):
            ask = Ask(part, options)
            cost = self.batcher.check(ask, client, width=wide, inside=begun)
            while wait := self.buckets.spend(client, cost):
                if not begun:
                    raise self.batcher.refused(429, MUCH, wait)
                await asyncio.sleep(wait)
            begun = True
            found = await self.awaited(ask, client, cost, left, self.settings.timeout)
            for one in found["translations"]:
                yield {**one, "version": found["version"]}


def parts(lines: Iterable[str], most: int, texts: int = 128) -> Iterator[list[str]]:
    """Lines in order, together as long as they have about `most` tokens; one that has more stands alone."""
    part, room = list[str](), most
    for line in lines:
        tokens = size([line])
        if part and (tokens > room or len(part) == texts):
            yield part
            part, room = [], most
        part.append(line)
        room -= tokens
    if part:
        yield part
