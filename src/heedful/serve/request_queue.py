"""The queue of admitted requests of a model: capacity and batch size in estimated tokens, round robin over clients.

cost       estimated tokens · beam / default beam
capacity   the tokens that the engine translates in `max_wait_seconds` at the measured throughput. The last quarter is
           reserved for clients that have nothing queued, so a busy client does not block the others
order      round robin over clients, oldest request first
batch      whole requests up to a token budget, which is at most a third of the capacity
"""

import asyncio
import time
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any
from unicodedata import normalize

from heedful.serve.protocol import LINE_OVERHEAD_TOKENS, TranslationJob
from heedful.serve.throughput import ThroughputEstimate

BYTES_PER_TOKEN = 3.0  # rough; throughput is measured in the same unit, so the error cancels
MEDIA_TOKENS, MEDIA_BYTES_PER_TOKEN = 64, 8192  # rough, too; large files take longer to decode
MIN_BATCH_BUDGET_TOKENS = 512
BUSY_CLIENT_SHARE = 0.75  # of the capacity, for clients that have a request queued


@dataclass(frozen=True, slots=True)
class QueueLimits:
    """Limits of the queue and of one request."""

    max_wait_seconds: float = 2.0  # in the queue
    max_request_tokens: int = 4096  # at the default beam; estimated by the server, then counted by the worker
    max_request_texts: int = 256
    max_batch_tokens: int = 4096  # estimated
    initial_capacity_tokens: int = 4096  # until the throughput is measured
    max_queued_tokens: int = 1 << 22  # in the queues of all models: about 12 MB of text


@dataclass(eq=False, slots=True)
class QueuedRequest:
    """An admitted request; `deadline` and `queued_at` are times of the monotonic clock."""

    job: TranslationJob
    client: str
    cost_tokens: int
    deadline: float
    result: asyncio.Future[Any]
    queued_at: float = field(default_factory=time.monotonic)

    @property
    def is_settled(self) -> bool:
        """Whether it has a result or its client disconnected."""
        return self.result.done()


def estimate_tokens(texts: Sequence[str], prefix: str = "") -> int:
    """Estimate the number of tokens without a tokenizer.

    Each line that is not blank adds LINE_OVERHEAD_TOKENS and the tokens of the forced prefix.
    """
    num_lines = sum(not line.isspace() for text in texts for line in text.splitlines() if line)
    line_tokens = LINE_OVERHEAD_TOKENS + (estimate_text_tokens(prefix) if prefix else 0)
    return num_lines * line_tokens + sum(1 + estimate_text_tokens(text) for text in texts)


def estimate_text_tokens(text: str) -> int:
    """Estimate the tokens of a text from its bytes after NFKC, which expands characters that represent several."""
    return int(len(normalize("NFKC", text).encode("utf-8", "replace").replace(b"\n", b"")) / BYTES_PER_TOKEN)


def estimate_media_tokens(media: Sequence[bytes]) -> int:
    """Estimate the cost of pictures or recordings, in tokens of text, from their files, which are not decoded here."""
    return sum(MEDIA_TOKENS + len(content) // MEDIA_BYTES_PER_TOKEN for content in media)


class RequestQueue:
    """Queued requests by client, and the batch that is being translated."""

    def __init__(self, limits: QueueLimits, throughput: ThroughputEstimate) -> None:
        self.limits, self.throughput = limits, throughput
        self.requests_by_client: OrderedDict[str, deque[QueuedRequest]] = OrderedDict()
        self.tokens_by_client: Counter[str] = Counter()
        self.queued_tokens = 0
        self.running: Sequence[QueuedRequest] = ()  # the batch that is being translated

    def __iter__(self) -> Iterator[QueuedRequest]:
        return (request for requests in self.requests_by_client.values() for request in requests)

    @property
    def running_tokens(self) -> int:
        return sum(request.cost_tokens for request in self.running)

    @property
    def capacity_tokens(self) -> float:
        """Tokens that may be queued or running."""
        speed = self.throughput.tokens_per_second
        return speed * self.limits.max_wait_seconds if speed else self.limits.initial_capacity_tokens

    @property
    def batch_budget_tokens(self) -> float:
        """Maximum tokens of a batch that has more than one request."""
        third_of_capacity = self.throughput.tokens_per_second * self.limits.max_wait_seconds / 3
        return min(self.limits.max_batch_tokens, max(MIN_BATCH_BUDGET_TOKENS, third_of_capacity))

    @property
    def wait_seconds(self) -> float:
        """Expected wait of a new request at the measured throughput; 0 before it is measured."""
        speed = self.throughput.tokens_per_second
        return (self.queued_tokens + self.running_tokens) / speed if speed else 0.0

    def is_full(self, client: str | None, cost_tokens: float = 0.0) -> bool:
        """Whether a request of this client would exceed the capacity; an empty queue is never full."""
        is_busy_client = client is not None and self.tokens_by_client[client]
        capacity = BUSY_CLIENT_SHARE * self.capacity_tokens if is_busy_client else self.capacity_tokens
        return self.queued_tokens > 0 and self.queued_tokens + self.running_tokens + cost_tokens > capacity

    def append(self, request: QueuedRequest) -> None:
        self.requests_by_client.setdefault(request.client, deque()).append(request)
        self.tokens_by_client[request.client] += request.cost_tokens
        self.queued_tokens += request.cost_tokens

    def take_batch(self, drop: Callable[[QueuedRequest], None]) -> list[QueuedRequest]:
        """Remove and return the next batch; `drop` is called for requests that are settled or past their deadline."""
        batch: list[QueuedRequest] = []
        batch_tokens = 0
        while self.requests_by_client:
            client, requests = next(iter(self.requests_by_client.items()))
            request = requests[0]
            if request.is_settled or time.monotonic() > request.deadline:
                drop(request)
            elif batch and batch_tokens + request.cost_tokens > self.batch_budget_tokens:
                break
            else:
                batch.append(request)
                batch_tokens += request.cost_tokens
            requests.popleft()
            self.queued_tokens -= request.cost_tokens
            self.tokens_by_client[client] -= request.cost_tokens
            self.requests_by_client.move_to_end(client)
            if not requests:
                del self.requests_by_client[client], self.tokens_by_client[client]
        return batch
