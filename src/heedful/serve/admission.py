"""What the queues of all models share: a memory limit, the count of rejections, and draining at shutdown."""

from heedful.serve.rejection import RequestRejected
from heedful.serve.request_queue import QueueLimits, RequestQueue


class Admission:
    """Admission of the whole server.

    Each model has its own queue, because each has its own speed and its own worker: a full queue rejects requests for
    this model only. The texts of all queues share the memory of the server process, so their tokens have one limit.
    """

    def __init__(self, limits: QueueLimits | None = None) -> None:
        self.limits = limits or QueueLimits()
        self.queues: list[RequestQueue] = []
        self.rejected_by_status: dict[int, int] = {}
        self.is_draining = False
        self.num_open_documents = 0  # more parts of them will be queued
        self.num_open_pivots = 0  # their second step will be queued

    @property
    def queued_tokens(self) -> int:
        return sum(queue.queued_tokens for queue in self.queues)

    @property
    def is_idle(self) -> bool:
        """Whether nothing is queued, running, or about to be queued."""
        is_busy = any(queue.queued_tokens or queue.running for queue in self.queues)
        return not (is_busy or self.num_open_documents or self.num_open_pivots)

    def is_memory_full(self, cost_tokens: float = 0.0) -> bool:
        """Whether a request would exceed the limit of all queues; empty queues are never full."""
        return self.queued_tokens > 0 and self.queued_tokens + cost_tokens > self.limits.max_queued_tokens

    def reject(self, status: int, message: str, retry_after: float | None = None) -> RequestRejected:
        """Count a rejection and return it, for the caller to raise."""
        self.rejected_by_status[status] = self.rejected_by_status.get(status, 0) + 1
        return RequestRejected(status, message, retry_after)
