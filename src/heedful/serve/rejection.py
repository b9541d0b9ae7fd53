"""The exception that becomes an HTTP error response."""

from math import ceil

OVERLOADED = "overloaded"
SHUTTING_DOWN = "the server is shutting down"
RATE_LIMITED = "rate limit reached"
DEFAULT_RETRY_SECONDS = 2.0  # if the wait is unknown


class RequestRejected(Exception):
    """A rejected request: HTTP status, message and, if a retry can succeed, Retry-After in seconds.

    `model` is the name of the model that rejected it; None: the whole server.
    """

    model: str | None = None

    def __init__(self, status: int, message: str, retry_after: float | None = None) -> None:
        self.status = status
        self.retry_after = None if retry_after is None else max(1, ceil(retry_after))
        self.message = message if self.retry_after is None else f"{message}: {retry_hint(self.retry_after)}"
        super().__init__(self.message)


def retry_hint(seconds: int) -> str:
    return f"retry after {seconds} second{'s' * (seconds != 1)}"


def body_too_large_message(max_bytes: int) -> str:
    return f"the body is larger than {max_bytes:,} bytes: send less per request"
