"""How many bytes of produce requests the gateway has in hand at most: read, waiting for their commit, or in it.

A request takes some times its size in memory until it is durable: the body, the records, the batch, what goes to the
database. What does not fit is refused, before its body is read where its length says so, and a crowd of large requests
gets 429 instead of time-outs. A body on its way counts for nothing here, or clients that send slowly would keep all
others out; the HTTP edge bounds those (`max_receiving_bytes`).
"""

from sharequeue.protocol.errors import Throttled
from sharequeue_gateway import metrics


class ProduceAdmission:
    """See `sharequeue.http.serving.Admission`. `bytes`: of the requests in hand."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self.bytes = 0
        metrics.PRODUCE_BYTES.set_function(lambda: self.bytes)

    def check(self, size: int) -> None:
        if self.bytes and self.bytes + size > self._max_bytes:
            raise Throttled(
                f"this gateway has {self.bytes} bytes of produce requests in hand and takes {self._max_bytes} "
                "(max_produce_bytes); nothing of this one was appended: send it again in a moment"
            )

    def take(self, size: int) -> None:
        self.check(size)
        self.bytes += size

    def release(self, size: int) -> None:
        self.bytes -= size
