"""How many bytes of produce requests the gateway has in hand at most: read, waiting for their commit, or in it.

A request takes some times its size in memory until it is durable: the body, the records, the batch, what goes to the
database. What does not fit is refused before its body is read, so that a crowd of large requests gets 429 instead of
time-outs, and the gateway keeps its memory.
"""

from sharequeue.protocol.errors import Throttled
from sharequeue_gateway import metrics


class Room:
    """The room of one request; see `sharequeue.serving.Room`."""

    __slots__ = ("_admission", "_size")

    def __init__(self, admission: "ProduceAdmission", size: int) -> None:
        self._admission = admission
        self._size = size
        admission.bytes += size

    def settle(self, size: int) -> None:
        self._admission.bytes -= self._size - size
        self._size = size

    def release(self) -> None:
        self.settle(0)


class ProduceAdmission:
    """`bytes`: of the requests in hand."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self.bytes = 0
        metrics.PRODUCE_BYTES.set_function(lambda: self.bytes)

    def room_for(self, size: int) -> Room:
        """Take a request of at most so many bytes in; one is always taken when there is no other. Raises: Throttled."""
        if self.bytes and self.bytes + size > self._max_bytes:
            raise Throttled(
                f"this gateway has {self.bytes} bytes of produce requests in hand and takes {self._max_bytes} "
                "(max_produce_bytes); nothing of this one was read: send it again in a moment"
            )
        return Room(self, size)
