"""Bounds the bytes of requests in hand that produce or commit: those that the gateway has read and not answered.

Until it is durable, a request takes several times its size in memory: the body, the records, the batch, the message to
the database. A request that does not fit is refused with 429, before its body is read if its Content-Length shows that.
So many large requests at once get 429 instead of time-outs. Bodies that still arrive do not count here, because slow
clients would then keep all others out. The HTTP edge bounds those (`max_receiving_bytes`).
"""

from sharequeue.protocol.errors import Throttled
from sharequeue_gateway import metrics


class ProduceAdmission:
    """See `sharequeue.http.application.endpoint.Admission`. `bytes`: of the requests in hand."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self.bytes = 0
        metrics.PRODUCE_BYTES.set_function(lambda: self.bytes)

    def check(self, size: int, in_hand: int = 0) -> None:
        """`in_hand`: bytes of the same request that are taken already."""
        if self.bytes > in_hand and self.bytes + size > self._max_bytes:
            raise Throttled(
                f"this gateway has {self.bytes} bytes of requests in hand that produce or commit, and takes "
                f"{self._max_bytes} (max_produce_bytes); nothing of this one has happened: send it again in a moment"
            )

    def take(self, size: int, in_hand: int = 0) -> None:
        self.check(size, in_hand)
        self.bytes += size

    def release(self, size: int) -> None:
        self.bytes -= size
